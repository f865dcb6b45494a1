//go:build harness

package harness_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/fakemodel"
	"tugline.dev/tugline/test/harness"
	"tugline.dev/tugline/test/mesh"
)

// pinned gives the version of a package that the other tests are run with.
func pinned(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("package.json")
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	if err := json.Unmarshal(b, &p); err != nil || p.Dependencies[name] == "" {
		t.Fatalf("package.json names no version of %s: %v", name, err)
	}
	return p.Dependencies[name]
}

// npmSettings has an npm in another home use the configuration and the cache of the
// person who runs the tests.
func npmSettings(t *testing.T) []string {
	t.Helper()
	vars := []string{"npm_config_prefer_offline=true"}
	for _, key := range []string{"cache", "userconfig"} {
		res, err := process.Run(t.Context(), process.Cmd{Argv: []string{"npm", "config", "get", key}, Env: os.Environ()})
		if err != nil {
			t.Fatalf("npm config get %s: %v\n%s", key, err, res.Stderr)
		}
		vars = append(vars, "npm_config_"+key+"="+strings.TrimSpace(string(res.Stdout)))
	}
	return vars
}

// TestProvisionedFromNPM: a runner without any agent is given Codex from the registry, by
// the npm of its machine, and a job runs with it.
func TestProvisionedFromNPM(t *testing.T) {
	t.Parallel()
	p := &place{Mesh: mesh.New(t), model: startModel(t)}
	// E2E_MESH marks the processes of jobs too, so that none can be left unseen.
	p.Config = "permissions: full\nenv_names: [" + harness.Codex.KeyVar() + ", E2E_MESH]\n"
	account := harness.Setup{CLI: harness.Codex, Home: mkdir(t, filepath.Join(p.Dir, "home")), BaseURL: p.model.URL("text-only", "nobody"), Key: "-"}
	if _, err := account.Env(); err != nil { // without it Codex is signed out there
		t.Fatal(err)
	}
	p.Vars = append(npmSettings(t), harness.Codex.KeyVar()+"="+fakemodel.GoodKey)
	p.StartHub()
	p.StartRunner()
	p.Online()
	version := pinned(t, "@openai/codex")
	if said := p.Run("runner", "provision", "r1", "codex", "--version", version, "--wait"); !strings.Contains(said, "codex "+version+": succeeded") {
		t.Fatalf("said %q", said)
	}
	p.finds("r1", 1)
	program, err := filepath.EvalSymlinks(filepath.Join(p.Dir, "runner", "provisioned", "codex", "current", "program"))
	if err != nil || !strings.HasPrefix(program, filepath.Join(p.Dir, "runner", "provisioned", "codex", version)+"/") {
		t.Errorf("the program is %s, %v", program, err)
	}
	p.repo = p.Repository("repo")
	r := p.do(task{cli: harness.Codex, scenario: "success"})
	p.want(r, fleet.Succeeded, fleet.ClassOK, "")
	if n := p.model.Served("success", "codex-success"); n != 3 {
		t.Errorf("the script answered %d requests, want 3", n)
	}
}
