//go:build harness

package harness_test

import (
	"archive/zip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/api"
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

// mirror serves builds of a browser that is a small program, as the maker's host does.
func mirror(t *testing.T, version string) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		folder, ok := strings.CutSuffix(path.Base(r.URL.Path), ".zip")
		if !ok || !strings.HasPrefix(r.URL.Path, "/"+version+"/") {
			http.NotFound(w, r)
			return
		}
		name := folder + "/chrome"
		if runtime.GOOS == "darwin" {
			name = folder + "/Google Chrome for Testing.app/Contents/MacOS/Google Chrome for Testing"
		}
		z := zip.NewWriter(w)
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(0o755)
		if f, err := z.CreateHeader(h); err == nil {
			f.Write([]byte("#!/bin/sh\necho Google Chrome for Testing " + version + "\n"))
		}
		z.Close()
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestBrowserIsProvisioned: the real installer of browsers, by npm, brings a build from
// where the owner says; one that is not there fails, and what was there stays.
func TestBrowserIsProvisioned(t *testing.T) {
	t.Parallel()
	const version = "150.0.7000.1"
	p := &place{Mesh: mesh.New(t)}
	p.Config = "harnesses: {exec: {}}\nprovision: {browser_source: " + mirror(t, version) + "}\n"
	p.Vars = npmSettings(t)
	p.StartHub()
	p.StartRunner()
	p.Online()
	if said := p.Run("runner", "provision", "r1", "browser", "--version", version, "--wait"); !strings.Contains(said, "browser "+version+": succeeded") {
		t.Fatalf("said %q", said)
	}
	if out, _, code := p.Try("runner", "provision", "r1", "browser", "--version", "150.0.7000.2", "--wait"); code != 1 || !strings.Contains(out, "failed (install)") {
		t.Errorf("a build that is not there: exit %d, %s", code, out)
	}
	var all api.Provisions
	p.JSON(&all, "runner", "provision", "r1", "--list", "--json")
	if len(all.Provisioning) != 2 || all.Provisioning[1].Installed != version {
		t.Errorf("asked for were %+v", all.Provisioning)
	}
	program := filepath.Join(p.Dir, "runner", "provisioned", "browser", "current", "program")
	res, err := process.Run(t.Context(), process.Cmd{Argv: []string{program, "--version"}, Env: os.Environ()})
	if err != nil || !strings.Contains(string(res.Stdout), version) {
		t.Errorf("the browser says %q, %v", res.Stdout, err)
	}
}
