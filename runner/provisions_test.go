package runner

import (
	"testing"

	"pgregory.net/rapid"

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
	for _, bad := range []string{"provision: {allow: [vim]}", "provision: {hours: [late]}", "provision: {keys: true}"} {
		if _, err := ParseOwner([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
