package runner

import (
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
