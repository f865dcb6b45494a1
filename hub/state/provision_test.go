package state

import (
	"bytes"
	"fmt"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func queue(id, what string, names ...string) *QueueProvision {
	return &QueueProvision{ID: id, Runner: "r1", What: what, Credentials: names}
}

// Each command at each state: what it leads to, or that it is refused.
func TestMovesOfProvisioning(t *testing.T) {
	commands := map[string]Command{
		"deliver": &DeliverProvision{Runner: "r1", ID: "p"},
		"succeed": &EndProvision{Runner: "r1", ID: "p", Installed: "1.2.3"},
		"fail":    &EndProvision{Runner: "r1", ID: "p", Class: fleet.ProvisionInstall, Detail: "404"},
		"cancel":  &CancelProvision{Runner: "r1", ID: "p"},
	}
	paths := map[fleet.ProvisionState][]string{
		fleet.ProvisionQueued: nil, fleet.ProvisionDelivered: {"deliver"}, fleet.ProvisionSucceeded: {"deliver", "succeed"},
		fleet.ProvisionFailed: {"fail"}, fleet.ProvisionCancelled: {"cancel"},
	}
	want := map[fleet.ProvisionState]map[string]fleet.ProvisionState{ // absent: refused
		fleet.ProvisionQueued: {
			"deliver": fleet.ProvisionDelivered, "succeed": fleet.ProvisionSucceeded, "fail": fleet.ProvisionFailed, "cancel": fleet.ProvisionCancelled,
		},
		fleet.ProvisionDelivered: {"deliver": fleet.ProvisionDelivered, "succeed": fleet.ProvisionSucceeded, "fail": fleet.ProvisionFailed},
		fleet.ProvisionSucceeded: {"succeed": fleet.ProvisionSucceeded},
		fleet.ProvisionFailed:    {"fail": fleet.ProvisionFailed},
		fleet.ProvisionCancelled: {"cancel": fleet.ProvisionCancelled},
	}
	for from, path := range paths {
		for name, cmd := range commands {
			t.Run(string(from)+" "+name, func(t *testing.T) {
				g := newRig(t)
				g.enrol("r1")
				g.do(queue("p", "codex", "CODEX_API_KEY"))
				for _, step := range path {
					g.do(commands[step])
				}
				to, allowed := want[from][name]
				switch {
				case !allowed:
					to = from
					g.refused(fleet.Conflict, cmd)
				case to == from:
					g.repeated(cmd)
				default:
					g.do(cmd)
				}
				p, _ := g.m.View().Provision("p")
				if p.State != to || p.Open() == (p.EndedAt != nil) || (p.Class != "") != (to == fleet.ProvisionFailed) || p.AskedBy != "t-person" {
					t.Errorf("%+v, want %s", p, to)
				}
			})
		}
	}
}

func TestQueueProvision(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	for name, bad := range map[string]*QueueProvision{
		"no id":                 queue("", "codex"),
		"another program":       queue("p", "vim"),
		"a path":                {ID: "p", Runner: "r1", What: "codex", Version: "../x"},
		"an address":            {ID: "p", Runner: "r1", What: "codex", Version: "https://example.com/x.tgz"},
		"an option":             {ID: "p", Runner: "r1", What: "codex", Version: "-g"},
		"another's credential":  queue("p", "codex", "ANTHROPIC_API_KEY"),
		"a variable of its own": queue("p", "codex", "LD_PRELOAD"),
		"a browser's login":     queue("p", "browser", "CODEX_API_KEY"),
		"a name twice":          queue("p", "codex", "CODEX_API_KEY", "CODEX_API_KEY"),
		"both ways at once":     {ID: "p", Runner: "r1", What: "codex", PreserveAuth: true, Credentials: []string{"CODEX_API_KEY"}},
	} {
		t.Run(name, func(t *testing.T) { g.refused(fleet.BadRequest, bad) })
	}
	g.refused(fleet.RunnerUnknown, &QueueProvision{ID: "p", Runner: "nobody", What: "codex"})
	g.do(queue("p1", "codex", "CODEX_API_KEY"))
	if res := g.repeated(queue("p2", "codex", "CODEX_API_KEY")); res.ID != "p1" {
		t.Errorf("the same asking is %q", res.ID)
	}
	g.refused(fleet.Conflict, queue("p2", "codex"))
	g.refused(fleet.Conflict, queue("p1", "claude"))
	g.do(queue("p3", "claude"))
	g.refused(fleet.NotFound, &CancelProvision{Runner: "r2", ID: "p3"})
	g.refused(fleet.BadRequest, &EndProvision{Runner: "r1", ID: "p3", Class: "because"})

	g.do(&Set{Name: fleet.SettingProvisioning, Value: fleet.ProvisioningSwitchOff})
	g.refused(fleet.Forbidden, queue("p4", "opencode"))
	g.do(&Set{Name: fleet.SettingProvisioning})

	g.do(&EndProvision{Runner: "r1", ID: "p1", Installed: "1.0.0"})
	for i := range 2 * fleet.MaxProvisions { // ended ones make room, open ones stay
		id := fmt.Sprintf("q%d", i)
		g.do(queue(id, "codex"))
		g.do(&EndProvision{Runner: "r1", ID: id, Class: fleet.ProvisionTimeout})
	}
	all := g.m.View().ProvisionsOf("r1")
	if _, ok := g.m.View().Provision("p3"); len(all) != fleet.MaxProvisions || !ok {
		t.Errorf("%d records, the open one is there: %v", len(all), ok)
	}
	var snap bytes.Buffer
	if err := g.m.Snapshot()(&snap); err != nil {
		t.Fatal(err)
	}
	g.do(&RemoveRunner{ID: "r1"})
	if n := len(g.m.View().ProvisionsOf("r1")); n != 0 {
		t.Errorf("%d records of a runner that was removed", n)
	}
	if err := g.m.Restore(&snap); err != nil || len(g.m.View().ProvisionsOf("r1")) != fleet.MaxProvisions {
		t.Errorf("restored: %v", err)
	}
}

// What new runners are given is asked for once: not of those that were there, and not
// again of one that enrols anew.
func TestAutoProvision(t *testing.T) {
	g := newRig(t)
	g.enrol("old")
	g.do(&Set{Name: fleet.SettingAutoProvision, Value: "codex, claude"})
	g.enrol("new")
	if n := len(g.m.View().ProvisionsOf("old")); n != 0 {
		t.Errorf("an old runner is given %d", n)
	}
	all := g.m.View().ProvisionsOf("new")
	if len(all) != 2 || all[0].AskedBy != "auto_provision" || all[0].State != fleet.ProvisionQueued {
		t.Fatalf("a new runner is given %+v", all)
	}
	g.do(&EndProvision{Runner: "new", ID: all[0].ID, Class: fleet.ProvisionInstall})
	g.do(&CreateTicket{Hash: digest("again"), TTL: 1e12, Uses: 1, For: "new"})
	g.do(&Enrol{Ticket: digest("again"), ID: "other", Name: "new", SignKey: []byte("another key"), BoxKey: bytes.Repeat([]byte{1}, 32)})
	if n := len(g.m.View().ProvisionsOf("new")); n != 2 {
		t.Errorf("enrolled anew it is given %d", n)
	}
	g.do(&Set{Name: fleet.SettingProvisioning, Value: fleet.ProvisioningSwitchOff})
	g.enrol("late")
	if n := len(g.m.View().ProvisionsOf("late")); n != 0 {
		t.Errorf("with the switch off a new runner is given %d", n)
	}
}
