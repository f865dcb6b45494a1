package runner

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

// TestHarnessesThatTheOwnerDoesNotAllow: the hub hears of those that are there and may not
// be used, so that nobody is told to install them.
func TestHarnessesThatTheOwnerDoesNotAllow(t *testing.T) {
	for rules, want := range map[string][2][]string{
		"":                          {{"exec", "codex", "claude"}, nil},
		"harnesses: {codex: {}}":    {{"codex"}, {"exec", "claude"}},
		"harnesses: {opencode: {}}": {nil, {"exec", "codex", "claude"}},
		"harnesses: {exec: {}, codex: {}, claude: {}}": {{"exec", "codex", "claude"}, nil},
	} {
		r := bare(t, rules+"\n")
		r.harnesses = []fleet.HarnessInfo{{Name: "exec"}, {Name: "codex"}, {Name: "claude"}}
		f := r.facts()
		var got [2][]string
		for _, h := range f.Harnesses {
			got[0] = append(got[0], h.Name)
		}
		got[1] = f.Barred
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q: allowed and barred (-want +got)\n%s", rules, d)
		}
	}
}

// TestModelsThatTheOwnerAllows: a list allows what is in it; none, an empty one and null
// allow all, also after there was one.
func TestModelsThatTheOwnerAllows(t *testing.T) {
	r := bare(t, "")
	r.harnesses = []fleet.HarnessInfo{{Name: "codex"}, {Name: "claude"}}
	for _, c := range []struct {
		rules string
		want  []string // of codex, as the hub hears it
	}{
		{"harnesses: {codex: {models: [m, n]}, claude: {}}", []string{"m", "n"}},
		{"harnesses: {codex: {models: null}, claude: {}}", nil},
		{"harnesses: {codex: {models: [m]}, claude: {}}", []string{"m"}},
		{"harnesses: {codex: {}, claude: {}}", nil},
		{"harnesses: {codex: {models: [m]}, claude: {}}", []string{"m"}},
		{"harnesses: {codex: {models: []}, claude: {}}", nil},
		{"harnesses: {codex: {models: [m]}, claude: {}}", []string{"m"}},
		{"harnesses: {codex: null, claude: null}", nil},
		{"harnesses: {codex: {models: [m]}, claude: {}}", []string{"m"}},
		{"harnesses: null", nil},
	} {
		if err := os.WriteFile(OwnerFile(r.cfg.Dir), []byte(c.rules+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.loadOwner()
		f := r.facts()
		codex, _ := f.Harness("codex")
		if len(f.Harnesses) != 2 || len(f.Alerts) > 0 || !slices.Equal(codex.Models, c.want) || !slices.Equal(r.policy().Models["codex"], c.want) {
			t.Errorf("%s: the hub hears of %+v, alerts %q, and jobs are held to %q; want %q", c.rules, f.Harnesses, f.Alerts, r.policy().Models["codex"], c.want)
		}
	}
}
