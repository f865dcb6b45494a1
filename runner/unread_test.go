package runner

import (
	"os"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// A start that finds no good rules allows nothing that the owner may have forbidden; once
// the file is mended its rules hold, and a later mistake leaves those in force.
func TestRulesThatAStartCannotRead(t *testing.T) {
	r := bare(t, "provision: {allow: []}\nslot: 3\n")
	p := wire.Provision{ID: "p", What: "codex"}
	standing := func() (refuses, waits string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		g := r.provisionGate(p)
		return g.refuses(), g.waits()
	}
	if refuses, waits := standing(); refuses != "" || !strings.Contains(waits, "runner.yaml") {
		t.Errorf("an installation: %q, %q", refuses, waits)
	}
	if o := r.owner; o.Paused == "" || o.Updates != "off" || o.Sessions != fleet.SessionsOff || o.KeepWorkspaces >= 0 {
		t.Errorf("in force are %+v", o)
	}
	for _, rules := range []string{"provision: {allow: []}\n", "slot: 3\n"} {
		if err := os.WriteFile(OwnerFile(r.cfg.Dir), []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		r.loadOwner()
		if refuses, _ := standing(); refuses == "" || r.owner.Paused != "" {
			t.Errorf("%q: refused for %q, paused for %q", rules, refuses, r.owner.Paused)
		}
	}
}
