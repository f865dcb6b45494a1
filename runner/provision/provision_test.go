package provision

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// fakeNPM puts an npm of a few lines before everything else in PATH. It is called as
// npm install --prefix DIR ….
func fakeNPM(t *testing.T, script string) (env []string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\ndir=$3\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + dir + ":/usr/bin:/bin", "HOME=" + t.TempDir(), "npm_config_registry=http://127.0.0.1:1/", "CODEX_API_KEY=sk-of-the-runner", "AWS_SECRET=x"}
}

// brings is an npm that brings a Codex which says that it is of a version.
func brings(version, says string) string {
	return `mkdir -p "$dir/node_modules/@openai/codex" "$dir/node_modules/.bin"
echo '{"version":"` + version + `"}' > "$dir/node_modules/@openai/codex/package.json"
printf '#!/bin/sh\necho codex-cli ` + says + `\n' > "$dir/node_modules/.bin/codex"
chmod 755 "$dir/node_modules/.bin/codex"
env > "$dir/env"
`
}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func hide(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }

func install(t *testing.T, s *Store, id string, env []string, credentials map[string]string) Record {
	t.Helper()
	rec, err := s.Install(t.Context(), Request{ID: id, What: "codex", Credentials: credentials, Env: env, Mark: "tugline-test-provision", Hide: hide})
	if err != nil {
		t.Fatal(err)
	}
	if kept, ok := s.Record(id); !ok || kept != rec {
		t.Errorf("kept is %+v of %+v", kept, rec)
	}
	return rec
}

func TestInstallBesideTheOthers(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if s.Program("codex") != "" {
		t.Error("a program is there before")
	}
	rec := install(t, s, "a", fakeNPM(t, brings("1.0.0", "1.0.0")), map[string]string{"CODEX_API_KEY": "sk-given"})
	if rec.State != Succeeded || rec.Installed != "1.0.0" {
		t.Fatalf("%+v", rec)
	}
	real := func() string {
		p, err := filepath.EvalSymlinks(s.Program("codex"))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := real()
	env, err := os.ReadFile(filepath.Join(dir, "codex", "1.0.0", "env"))
	if err != nil || !strings.Contains(string(env), "npm_config_registry=") || strings.Contains(string(env), "sk-") || strings.Contains(string(env), "AWS") || !strings.Contains(string(env), "TUGLINE_MARK=tugline-test-provision") {
		t.Errorf("npm gets %s, %v", env, err)
	}
	install(t, s, "b", fakeNPM(t, brings("1.1.0", "1.1.0")), nil)
	second := real()
	if _, err := os.Stat(first); err != nil || first == second {
		t.Errorf("what a job may be running is gone: %v", err)
	}
	if rec := install(t, s, "c", fakeNPM(t, brings("1.1.0", "1.1.0")), nil); rec.State != Succeeded || real() == second {
		t.Errorf("the same again: %+v at %s", rec, real())
	}
	if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the one before the last is still there: %v", err)
	}
	s = open(t, dir)
	if env := s.Environ("codex"); len(env) != 1 || env[0] != "CODEX_API_KEY=sk-given" || real() == second {
		t.Errorf("after a restart: %d credentials, %s", len(env), real())
	}
	if st, err := os.Stat(filepath.Join(dir, "codex", "credentials.json")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file of credentials: %v, %v", st, err)
	}
}

// What fails leaves what was there, its class and no trace.
func TestFailedInstalls(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	install(t, s, "good", fakeNPM(t, brings("1.0.0", "1.0.0")), map[string]string{"CODEX_API_KEY": "sk-first"})
	none := []string{"PATH=" + t.TempDir()}
	for name, c := range map[string]struct {
		env           []string
		class, detail string
	}{
		"refused":         {fakeNPM(t, "echo 'npm http fetch GET 404' >&2; echo 'npm error 404 https://me:pw@packages.example hunter2' >&2; exit 1"), fleet.ProvisionInstall, "status 1: 404 https://***@packages.example ***"},
		"no npm":          {none, fleet.ProvisionNoNPM, "install Node"},
		"another version": {fakeNPM(t, brings("2.0.0", "1.0.0")), fleet.ProvisionVerify, "does not run here"},
		"no program":      {fakeNPM(t, brings("2.0.0", "2.0.0")+"rm \"$dir/node_modules/.bin/codex\""), fleet.ProvisionVerify, "no program"},
		"nothing":         {fakeNPM(t, "exit 0"), fleet.ProvisionVerify, "brought no"},
		"a path":          {fakeNPM(t, brings("../../x", "x")), fleet.ProvisionVerify, "no version"},
		"a files name":    {fakeNPM(t, brings("current", "current")), fleet.ProvisionVerify, "no version"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := install(t, s, strings.ReplaceAll(name, " ", "-")+"-1", c.env, map[string]string{"CODEX_API_KEY": "sk-second"})
			if rec.State != Failed || rec.Class != c.class || !strings.Contains(rec.Detail, c.detail) || strings.Contains(rec.Detail, "hunter2") {
				t.Errorf("%+v", rec)
			}
			all, err := os.ReadDir(filepath.Join(dir, "codex"))
			if err != nil || len(all) != 3 { // 1.0.0, current and the credentials
				t.Errorf("left are %v, %v", all, err)
			}
			if env := s.Environ("codex"); len(env) != 1 || env[0] != "CODEX_API_KEY=sk-first" {
				t.Error("other credentials are in force")
			}
		})
	}
}

// An end in the middle is found at the next start; nothing but the half is removed.
func TestInterruptedInstalls(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	install(t, s, "good", fakeNPM(t, brings("1.0.0", "1.0.0")), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	env := fakeNPM(t, "mkdir -p \"$dir/node_modules\"; while :; do sleep 0.05; done")
	ended := make(chan error, 1)
	go func() {
		_, err := s.Install(ctx, Request{ID: "half", What: "codex", Env: env, Mark: "tugline-test-provision", Hide: hide})
		ended <- err
	}()
	for {
		if _, err := os.Stat(filepath.Join(dir, "codex", ".new-half", "node_modules")); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "codex", ".new-another")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	rec, ok := s.Record("half")
	if !ok || rec.State != Failed || rec.Class != fleet.ProvisionInterrupted || s.Program("codex") == "" {
		t.Errorf("%+v", rec)
	}
	if _, err := os.Stat(filepath.Join(dir, "codex", ".new-half")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half is there: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("what no record names is gone: %v", err)
	}

	// Killed after the switch and before its record: it is in place, and is told so.
	if err := s.Put(Record{ID: "good", What: "codex", State: Installs}); err != nil {
		t.Fatal(err)
	}
	if rec, _ := open(t, dir).Record("good"); rec.State != Succeeded || rec.Installed != "1.0.0" {
		t.Errorf("what is in place is %+v", rec)
	}
}

func TestRecordsThatCannotBeRead(t *testing.T) {
	for file, text := range map[string]string{
		"record.json":            `{"version":2,"records":[]}`,
		"codex/credentials.json": `{"LD_PRELOAD":"x.so"}`,
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "codex"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); err == nil || strings.Contains(err.Error(), "x.so") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte(`{"version":1,"records":[{"id":"a","what":"codex","state":"installs"}]}`))
	f.Add([]byte(`{"version":"1.2.3"}`))
	f.Add([]byte(`{"CODEX_API_KEY":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if all, err := parseRecords(b); err == nil {
			for _, r := range all {
				if !isID(r.ID) || filepath.Base(".new-"+r.ID) != ".new-"+r.ID {
					t.Errorf("id %q", r.ID)
				}
			}
		}
		if v, err := parseVersion(b); err == nil && (filepath.Base(v) != v || v[0] == '.' || v[0] == '-') {
			t.Errorf("version %q", v)
		}
		if values, ok := parseCredentials("codex", b); ok {
			for name := range values {
				if name != "CODEX_API_KEY" && name != "OPENAI_BASE_URL" {
					t.Errorf("credential %q", name)
				}
			}
		}
		if s := plain(string(b)); strings.ContainsAny(s, "\n\x1b\x00") || len(s) > fleet.MaxDetail {
			t.Errorf("told is %q", s)
		}
	})
}

// A browser comes by the installer that npm brings, from where the owner says.
func TestBrowser(t *testing.T) {
	brings := func(version, says, code string) string {
		return `case "$*" in *--ignore-scripts*@puppeteer/browsers@` + installer + `) ;; *) exit 1;; esac
mkdir -p "$dir/node_modules/@puppeteer/browsers" "$dir/node_modules/.bin"
echo '{"version":"` + installer + `"}' > "$dir/node_modules/@puppeteer/browsers/package.json"
cat > "$dir/node_modules/.bin/browsers" <<'END'
#!/bin/sh
echo "$*" | sed "s|--path $PWD/|--path |" > asked
at=builds/chrome/linux-` + version + `/chrome-linux64
mkdir -p $at
printf '#!/bin/sh\necho Google Chrome for Testing ` + says + `\n' > $at/chrome
chmod 755 $at/chrome
echo "no such build" >&2
exit ` + code + `
END
chmod 755 "$dir/node_modules/.bin/browsers"
`
	}
	for name, c := range map[string]struct {
		script, source, class, detail, asked string
	}{
		"whole":           {brings("150.0.1.2", "150.0.1.2", "0"), "http://mirror.example", "", "", "install chrome@150 --path builds --base-url http://mirror.example\n"},
		"from its maker":  {brings("150.0.1.2", "150.0.1.2", "0"), "", "", "", "install chrome@150 --path builds\n"},
		"refused":         {brings("150.0.1.2", "150.0.1.2", "1"), "", fleet.ProvisionInstall, "the installer of browsers ended with status 1: no such build", ""},
		"another version": {brings("150.0.1.2", "149.0.0.0", "0"), "", fleet.ProvisionVerify, "does not run here", ""},
		"no version":      {brings("x", "x", "0"), "", fleet.ProvisionVerify, "no version", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			rec, err := s.Install(t.Context(), Request{ID: "a", What: fleet.ProvisionBrowser, Version: "150", Source: c.source, Env: fakeNPM(t, c.script), Mark: "tugline-test-provision", Hide: hide})
			if err != nil || rec.Class != c.class || !strings.Contains(rec.Detail, c.detail) {
				t.Fatalf("%+v, %v", rec, err)
			}
			if (s.Program(fleet.ProvisionBrowser) == "") != (c.class != "") {
				t.Errorf("the program is %q", s.Program(fleet.ProvisionBrowser))
			}
			if c.class != "" {
				return
			}
			asked, err := os.ReadFile(filepath.Join(dir, "browser", "150.0.1.2", "asked"))
			if err != nil || string(asked) != c.asked || rec.Installed != "150.0.1.2" {
				t.Errorf("asked is %q, %v; installed %s", asked, err, rec.Installed)
			}
		})
	}
}
