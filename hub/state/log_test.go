package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// oldLogs are logs as they were written, with what wrote them. Commands that came
// later have logs of their own, since none of these is ever written anew.
var oldLogs = []struct {
	name  string
	write func(*testing.T) []byte
}{
	{"log-v1", writeLog},
	{"log-keys", writeKeysLog},
	{"log-v2", writeClusterLog},
	{"log-machines", writeMachinesLog},
	{"log-circuits", writeCircuitsLog},
	{"log-v3", writeRulesLog},
	{"log-releases", writeReleasesLog},
	{"log-provisions", writeProvisionsLog},
	{"log-browsers", writeBrowsersLog},
	{"log-passkeys", writePasskeysLog},
}

// TestOldLogs replays committed logs to the states that they led to when they were
// written. A change that fails here breaks the logs that are out there: it needs a
// new command kind, not a new golden file.
func TestOldLogs(t *testing.T) {
	used := map[Kind]bool{}
	for _, l := range oldLogs {
		t.Run(l.name, func(t *testing.T) { replay(t, l.name, l.write, used) })
	}
	for _, k := range Kinds() {
		if !used[k] {
			t.Errorf("command kind %d (%T) is in no log", k, kinds[k]())
		}
	}
}

func replay(t *testing.T, name string, write func(*testing.T) []byte, used map[Kind]bool) {
	log, sum := filepath.Join("testdata", name+".bin"), filepath.Join("testdata", name+".sha256")
	if _, err := os.Stat(log); *update && errors.Is(err, os.ErrNotExist) { // never over one that is there
		if err := os.WriteFile(log, write(t), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	m := New()
	for index := uint64(1); len(b) > 0; index++ {
		n := binary.BigEndian.Uint32(b)
		entry := b[4 : 4+n]
		b = b[4+n:]
		if _, _, err := m.Apply(index, entry); err != nil {
			t.Fatalf("entry %d: %v", index, err)
		}
		used[Kind(binary.BigEndian.Uint16(entry[1:]))] = true
	}
	hash := sha256.Sum256(snapshot(t, m))
	got := hex.EncodeToString(hash[:])
	if *update {
		if err := os.WriteFile(sum, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(sum)
	if err != nil {
		t.Fatal(err)
	}
	if got != strings.TrimSpace(string(want)) {
		t.Errorf("the log leads to a state with hash %s, it led to %s when it was written", got, want)
	}
}

// writeClusterLog makes a log of a cluster: nodes that come and go, an epoch that is
// raised under running work, orphans, silent runners.
func writeClusterLog(t *testing.T) []byte {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "cluster", Epoch: 1})
	g.do(&CreateToken{Token: fleet.Token{ID: "t-1", Role: fleet.RoleAdmin, Hash: digest("t-1")}})
	ofTheCluster(g)
	for _, s := range situations {
		for _, r := range []fleet.RunnerID{"r1", "r2"} {
			if _, ok := g.m.View().Runner(r); !ok {
				g.enrol(r)
			}
		}
		s.make(g)
		f := fleet.Fence{Epoch: 1, Index: 1}
		var a *fleet.Attempt
		j := g.job(gridJob)
		if as := j.Turn().Attempts; len(as) > 0 {
			a, f = as[0], as[0].Fence
		}
		for _, c := range commandsOfGrid {
			switch c.name {
			case "raise epoch", "renew", "renew, permitted", "report orphan", "finish", "permit push", "decide accept", "follow-up":
				g.try(aim(c.make(g, j, f, a), f))
			}
		}
		g.clearGrid(t, s.name)
	}
	return written(g)
}

// clearGrid ends the job of a situation and has it forgotten, so that the next can take its name.
func (g *rig) clearGrid(t *testing.T, situation string) {
	t.Helper()
	g.try(&CancelJob{Job: gridJob, Abandon: true})
	for _, tu := range g.job(gridJob).Turns {
		for _, a := range tu.Attempts {
			g.try(&SealLog{Job: gridJob, Fence: a.Fence})
		}
	}
	g.do(&Expire{Jobs: []fleet.JobID{gridJob}, Limit: 5, AuditAge: time.Minute})
	if _, left := g.m.View().Job(gridJob); left {
		t.Fatalf("the job of %q is still there: %s", situation, describe(g))
	}
}

// writeLog makes a log with every command, in situations and by all commands.
func writeLog(t *testing.T) []byte {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "cluster", Epoch: 1})
	g.do(&CreateToken{Token: fleet.Token{ID: "t-1", Role: fleet.RoleAdmin, Hash: digest("t-1")}})
	g.do(&CreateToken{Token: fleet.Token{ID: "t-2", Role: fleet.RoleViewer, Hash: digest("t-2")}, TTL: time.Hour})
	g.do(&RevokeToken{ID: "t-2"})
	g.do(&Set{Name: "default_harness", Value: "codex"})
	g.enrol("r1")
	g.enrol("r2")
	for _, s := range situations {
		s.make(g)
		f := fleet.Fence{Epoch: 1, Index: 1}
		j := g.job(gridJob)
		var a *fleet.Attempt
		if as := j.Turn().Attempts; len(as) > 0 {
			a, f = as[0], as[0].Fence
		}
		for _, c := range commandsOfGrid {
			if strings.HasPrefix(c.name, "remove") || c.name == "enrol anew" {
				continue // the next situation needs both runners
			}
			g.try(aim(c.make(g, j, f, a), f))
		}
		g.try(&CancelJob{Job: gridJob, Abandon: true})
		for _, tu := range g.job(gridJob).Turns {
			for _, a := range tu.Attempts {
				g.try(&SealLog{Job: gridJob, Fence: a.Fence})
			}
		}
		why := ""
		g.do(&FlagRunner{ID: "r1", Conflict: &why})
		g.do(&Expire{Jobs: []fleet.JobID{gridJob}, Limit: 5, AuditAge: time.Minute})
		if _, left := g.m.View().Job(gridJob); left {
			t.Fatalf("the job of %q is still there: %s", s.name, describe(g))
		}
	}
	g.keyed("t-1", "key", "body", "kept")
	g.keyed("t-1", "key", "body", "again")
	g.do(&FollowUp{Job: "kept", Prompt: digest("two")})
	g.run("kept", "r2")
	g.do(&RemoveRunner{ID: "r1"})
	return written(g)
}

// written gives the entries that a rig has applied, each behind its length.
func written(g *rig) (out []byte) {
	for _, e := range g.log {
		out = binary.BigEndian.AppendUint32(out, uint32(len(e)))
		out = append(out, e...)
	}
	return out
}

// TestEntryForm pins the bytes of an entry and what is refused.
func TestEntryForm(t *testing.T) {
	h := Head{At: time.Unix(0, 258).UTC(), Actor: "t-1", Key: "k", Route: "POST /v1/jobs", Hash: "h"}
	b, err := Encode(h, &MarkPulled{Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "\x01\x00\x15\x00\x00\x00\x00\x00\x00\x01\x02\x03t-1\x01k\x0dPOST /v1/jobs\x01h" + `{"job":"j"}`
	if string(b) != want {
		t.Errorf("entry is %q, want %q", b, want)
	}
	if got, c, err := Decode(b); err != nil || got != h || c.(*MarkPulled).Job != "j" {
		t.Errorf("decoded %+v, %+v, %v", got, c, err)
	}
	for n := range b {
		if _, _, err := Decode(b[:n]); err == nil {
			t.Errorf("an entry cut after %d bytes was taken", n)
		}
	}
	h.From = "192.0.2.7"
	told := "\x02" + want[1:len(want)-len(`{"job":"j"}`)] + "\x09192.0.2.7" + `{"job":"j"}`
	if b, err := Encode(h, &MarkPulled{Job: "j"}); err != nil || string(b) != told {
		t.Errorf("entry with an address is %q, %v; want %q", b, err, told)
	}
	if got, c, err := Decode([]byte(told)); err != nil || got != h || c.(*MarkPulled).Job != "j" {
		t.Errorf("decoded %+v, %+v, %v", got, c, err)
	}
	for n := range told {
		if _, _, err := Decode([]byte(told[:n])); err == nil {
			t.Errorf("an entry with an address cut after %d bytes was taken", n)
		}
	}
	for _, bad := range []string{"\x03" + want[1:], "\xf0" + want[1:], "\x01\xff\xff" + want[3:]} { // \xf0: several commands in one
		if _, _, err := Decode([]byte(bad)); !errors.Is(err, ErrUnknownEntry) {
			t.Errorf("%.10q gave %v, want an unknown entry", bad, err)
		}
	}
	m := New()
	before := snapshot(t, m)
	if _, _, err := m.Apply(1, []byte("\x01\xff\xff"+want[3:])); !errors.Is(err, ErrUnknownEntry) || !bytes.Equal(before, snapshot(t, m)) {
		t.Errorf("applying an unknown entry gave %v", err)
	}
	for _, h := range []Head{{Actor: strings.Repeat("x", 256)}, {Key: "\xff"}} {
		if _, err := Encode(h, &MarkPulled{}); err == nil {
			t.Errorf("head %+v was taken", h)
		}
	}
	if _, err := Encode(Head{}, &MarkPulled{Job: fleet.JobID(strings.Repeat("x", MaxEntry))}); !errors.Is(err, fleet.TooLarge) {
		t.Errorf("an entry over its bound gave %v", err)
	}
}

// TestRestoreRefuses what is not a whole snapshot, and keeps the state it had.
func TestRestoreRefuses(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	g.run("a", "r1")
	g.keyed("t-1", "k", "body", "b")
	good := snapshot(t, g.m)
	lines := strings.SplitAfter(string(good), "\n")
	lines = lines[:len(lines)-1]
	row := func(s string) int {
		for i, l := range lines {
			if strings.Contains(l, s) {
				return i
			}
		}
		t.Fatalf("no row with %s", s)
		return 0
	}
	edit := func(i int, old, new string) string {
		l := append([]string(nil), lines...)
		if !strings.Contains(l[i], old) {
			t.Fatalf("row %d has no %s: %s", i, old, l[i])
		}
		l[i] = strings.Replace(l[i], old, new, 1)
		return strings.Join(l, "")
	}
	bad := map[string]string{
		"empty":               "",
		"newer version":       edit(0, `:1}`, `:2}`),
		"unknown table":       edit(1, `"meta"`, `"novel"`),
		"a row twice":         edit(row(`"t":"jobs"`), "\n", "\n"+lines[row(`"t":"jobs"`)]),
		"no last line":        strings.Join(lines[:len(lines)-1], ""),
		"job without turns":   edit(row(`"t":"jobs"`), `"turns":[`, `"turns":[],"x":[`),
		"job in a void state": edit(row(`"t":"jobs"`), `"state":"running"`, `"state":"napping"`),
		"no current attempt":  edit(row(`"t":"jobs"`), `"current":1`, `"current":0`),
		"current out of turn": edit(row(`"t":"jobs"`), `"current":1`, `"current":7`),
	}
	for i := range lines {
		if i > 0 {
			bad["without line "+lines[i][:min(20, len(lines[i]))]] = strings.Join(append(append([]string(nil), lines[:i]...), lines[i+1:]...), "")
		}
	}
	for name, s := range bad {
		if err := g.m.Restore(strings.NewReader(s)); err == nil {
			t.Errorf("%s: taken", name)
		}
		if !bytes.Equal(snapshot(t, g.m), good) {
			t.Fatalf("%s: the refusal changed the state", name)
		}
	}
	if err := g.m.Restore(bytes.NewReader(good)); err != nil {
		t.Error(err)
	}
}
