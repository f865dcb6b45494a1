package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// What the owner of a machine says in runner.yaml is told at the hub as the reason why a
// job waits, rule by rule, without anything being started anew; without the rule it runs.
func TestOwnersRulesAreTold(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	m.StartHub()
	lowFloors(m)
	m.StartRunner()
	m.Online()
	file := filepath.Join(m.Dir, "runner", "runner.yaml")
	plain, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rule := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, append(plain[:len(plain):len(plain)], text+"\n"...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	automated := []string{"--automation", "nightly"}
	for _, c := range []struct {
		rule  string
		flags []string
		code  fleet.Code
		words []string
	}{
		{"paused: holidays", nil, fleet.OwnerPolicy, []string{"paused by its owner: holidays"}},
		{"hours: {quiet: ['00:00-24:00']}", nil, fleet.OwnerPolicy, []string{"takes nothing now", "quiet hours until"}},
		{"origins: [automation]", nil, fleet.OwnerPolicy, []string{"does not take manual work"}},
		{"origins: [manual]", automated, fleet.OwnerPolicy, []string{"does not take automation work"}},
		{"harnesses: {codex: {}}", nil, fleet.OwnerPolicy, []string{"has exec, and its owner does not allow it"}},
		{"repositories: {allow: ['https://example.test/**']}", []string{"--repo", "https://other.test/a.git"}, fleet.OwnerPolicy, []string{"does not allow the repository https://other.test/a.git"}},
		{"max_load: 0.00001", nil, fleet.OwnerPolicy, []string{"load of", "max_load"}},
		{"min_memory: 900TiB", nil, fleet.OwnerPolicy, []string{"available, below", "min_memory"}},
		{"memory: {keep: 900TiB}", automated, fleet.AutomationOff, []string{"memory: 0 slots for automations"}},
		{"floors: {select: 900TiB}", automated, fleet.AutomationOff, []string{"disk: ", "(floors)"}},
	} {
		rule(c.rule)
		// It is in force a moment later; until then the runner would take the job.
		m.Run("runner", "cordon", "r1")
		id := m.Detach(append(append([]string{"exec"}, c.flags...), "--", "true")...)
		known := c.words[len(c.words)-1]
		m.Eventually(30*time.Second, "the hub knows the rule "+c.rule, func() bool {
			return strings.Contains(m.Run("job", "explain", id, "--json")+m.Run("runner", "get", "r1", "--json"), known)
		})
		m.Run("runner", "resume", "r1")
		waitsFor(m, id, c.code, c.words...)
		m.Run("job", "cancel", id)
	}
	rule("")
	if j := m.Ended(m.Detach("exec", "--automation", "nightly", "--", "true"), time.Minute); j.State != fleet.Succeeded {
		t.Errorf("without a rule the job is %s (%s)", j.State, j.Reason.Detail)
	}
}
