package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"tugline.dev/tugline/hub"
	"tugline.dev/tugline/shared/api"
)

// TestRecoverSaysWhoMustEnrol: by name, how, and only where it is so.
func TestRecoverSaysWhoMustEnrol(t *testing.T) {
	for name, c := range map[string]struct {
		r        hub.Recovered
		has, not []string
	}{
		"a log that was there": {hub.Recovered{Runners: []string{"ada"}}, nil, []string{"enrol", "ada"}},
		"new keys":             {hub.Recovered{NewKeys: true, Backup: &api.Backup{}, Runners: []string{"ada", "bob"}}, []string{"every runner must enrol again", "ada, bob", "tugline hub ticket --for RUNNER", "tugline runner run", "enrolled after the backup"}, nil},
		"keys of the backup":   {hub.Recovered{Backup: &api.Backup{}, Runners: []string{"ada"}}, []string{"that have seen newer ones", "ada", "tugline hub ticket --for RUNNER", "enrolled after the backup"}, []string{"every runner"}},
		"nobody on record":     {hub.Recovered{NewKeys: true, Backup: &api.Backup{}}, []string{"no runner is on record"}, []string{"every runner"}},
	} {
		s := newShell(t, "")
		a := app{out: s.out}
		a.describeRecovery("/d", &c.r)
		has(t, name, s.out.String(), c.has...)
		for _, no := range c.not {
			if strings.Contains(s.out.String(), no) {
				t.Errorf("%s says %q:\n%s", name, no, s.out)
			}
		}
	}
}

// TestRecoverTellsWhatMayBeLost: of a backup, all that came after it; of a log, where it ends.
func TestRecoverTellsWhatMayBeLost(t *testing.T) {
	defer goleak.VerifyNone(t)
	s, stop := runHub(t)
	dir := t.TempDir()
	file, pass := filepath.Join(dir, "b.tar"), filepath.Join(dir, "pass")
	if err := os.WriteFile(pass, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("exec", "--detach", "--", "true")
	s.must("hub", "backup", file, "--passphrase-file", pass)
	stop()
	anew := filepath.Join(dir, "anew")
	has(t, "from a backup", s.must("hub", "recover", "--data-dir", anew, "--from-backup", file, "--passphrase-file", pass),
		"is now the only one of cluster", "is lost", "1 job on record", "newer ones", "must not come back", "tugline hub run --data-dir "+anew)
	has(t, "of a log", s.must("hub", "recover", "--data-dir", anew), "its log goes to entry", "1 job on record")
}
