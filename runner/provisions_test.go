package runner

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tugline.dev/tugline/runner/provision"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// Whatever else is so, nothing begins that the owner does not allow, credentials come
// only where they are taken, and no agent is replaced under its own jobs.
func TestTheGateOfInstallations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bit := func(name string) bool { return rapid.Bool().Draw(t, name) }
		g := provisionGate{
			what: "codex", allowed: bit("allowed"), barred: bit("barred"), credentials: bit("credentials"), mayGive: bit("mayGive"),
			hours: bit("hours"), jobs: bit("jobs"), busy: bit("busy"),
		}
		may := g.allowed && !g.barred && (!g.credentials || g.mayGive)
		now := g.hours && !g.jobs && !g.busy
		if (g.refuses() == "") != may || (g.waits() == "") != now {
			t.Errorf("%+v: %q, %q", g, g.refuses(), g.waits())
		}
	})
}

// What runner.yaml says comes to the gate.
func TestOwnersRulesOfInstallations(t *testing.T) {
	for _, c := range []struct {
		rules       string
		what        string
		credentials bool
		refused     bool
	}{
		{"", "codex", false, false},
		{"", "codex", true, true},
		{"provision: {credentials: true}", "codex", true, false},
		{"provision: {allow: [claude]}", "codex", false, true},
		{"provision: {allow: []}", "claude", false, true},
		{"harnesses: {exec: {}}", "codex", false, true},
		{"harnesses: {codex: {}}", "codex", false, false},
		{"harnesses: {exec: {}}", "browser", false, false},
		{"provision: {allow: [codex]}", "browser", false, true},
	} {
		o, err := ParseOwner([]byte(c.rules))
		if err != nil {
			t.Fatal(err)
		}
		p := wire.Provision{ID: "p", What: c.what}
		if c.credentials {
			p.Credentials = fleet.ProvisionCredentialNames(c.what)[:1]
		}
		r := &Runner{owner: o}
		if got := r.provisionGate(p).refuses(); (got != "") != c.refused {
			t.Errorf("%s: %s with credentials %v: %q", c.rules, c.what, c.credentials, got)
		}
	}
	for _, bad := range []string{"provision: {allow: [vim]}", "provision: {hours: [late]}", "provision: {keys: true}", "provision: {browser_source: --version}", "provision: {browser_source: 'file:///etc'}"} {
		if _, err := ParseOwner([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// Below 500 MiB nothing is installed, and neither where the volume does not answer: npm is
// not called, and the record says why.
func TestInstallationsNeedRoom(t *testing.T) {
	for _, c := range []struct {
		v    fleet.Volume
		want string
	}{
		{fleet.Volume{Known: true, Free: 500 << 20}, ""},
		{fleet.Volume{Known: true, Free: 500<<20 - 1}, "below 500 MiB"},
		{fleet.Volume{Known: true}, "below 500 MiB"},
		{fleet.Volume{Free: 1 << 40, Detail: "no answer in 2s"}, "not known how much is free where the runner keeps its data: no answer in 2s"},
	} {
		if got := noRoom(c.v); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v: %q, want %q", c.v, got, c.want)
		}
	}

	r := bare(t, "")
	store, err := provision.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r.provisions.store = store
	r.cfg.Dir = "\x00"            // no volume has it
	t.Setenv("PATH", t.TempDir()) // an npm that is looked for would be another failure
	rec, err := r.carryOut(t.Context(), wire.Provision{ID: "p", What: "codex"}, nil)
	if kept, ok := store.Record("p"); err != nil || !ok || kept != rec || rec.State != provision.Failed || rec.Class != fleet.ProvisionStorage || !strings.Contains(rec.Detail, "not known") {
		t.Errorf("without an answer of the volume: %+v, %v", rec, err)
	}
}
