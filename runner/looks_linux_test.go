package runner

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// What was there before the checkout and is gone after it keeps the job from being begun:
// a disk that the checkout itself has filled, a Docker that has ended meanwhile. Memory
// that is not there keeps it from being checked out at all.
func TestMachineIsLookedAtAgainBeforeTheStart(t *testing.T) {
	h := newHub(t)
	dir, bin := t.TempDir(), t.TempDir()
	smallDisk(t, dir, 60)
	if err := os.WriteFile(OwnerFile(dir), []byte("allow_file: true\nmin_free_bytes: 40MiB\ngit: {name: R, email: r@x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	host, _ := engine(t)
	t.Setenv("DOCKER_HOST", host)
	// Compose answers until the job's directory is there.
	for name, script := range map[string]string{"docker": "ls -d " + dir + "/scratch/*/work >/dev/null 2>&1 && exit 1\necho Docker Compose version v2.32.4", "docker-compose": "exit 1"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	r := h.newRunner(func(c *Config) { c.Dir = dir })
	ran := filepath.Join(t.TempDir(), "ran")
	declined := func(spec fleet.Spec, code fleet.Code, words string) fleet.JobID {
		t.Helper()
		spec.Kind, spec.Harness, spec.Argv = fleet.KindExec, "exec", []string{"touch", ran}
		j := h.submit(spec)
		f := h.assign(j, r.id)
		eventually(t, "the job to be declined", func() bool { return h.attempt(j, f).State == fleet.AttemptDeclined }, func() any { return h.attempt(j, f) })
		if a := h.attempt(j, f); a.Code != code || !strings.Contains(a.Detail, words) || a.AcceptedAt != nil {
			t.Errorf("declined with %s, %q; want %s and a word about %q", a.Code, a.Detail, code, words)
		}
		if there(ran) {
			t.Error("it was started")
		}
		return j
	}

	j := declined(fleet.Spec{Needs: &fleet.Needs{Memory: 1 << 50}}, fleet.MemoryTight, "of memory are available, the job needs 1048576 GiB")
	if there(r.scratch(j)) {
		t.Error("its directory was made ready before the memory was looked at")
	}
	j = declined(fleet.Spec{Needs: &fleet.Needs{Docker: true}}, fleet.DockerMissing, "Compose does not answer")
	if !there(r.scratch(j)) {
		t.Error("Compose did not answer before the directory was made ready")
	}

	bare, _ := repository(t)
	work, large := t.TempDir(), make([]byte, 14<<20)
	rand.Read(large) // so that git cannot make it smaller
	git(t, work, "clone", "-q", bare, ".")
	if err := os.WriteFile(filepath.Join(work, "large"), large, 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, work, "add", ".")
	git(t, work, "commit", "-q", "-m", "large")
	git(t, work, "push", "-q", "origin", "HEAD:main")
	declined(fleet.Spec{Repo: &fleet.Repo{URL: bare}}, fleet.Storage, "40 MiB are to stay free")
	if n := r.ledger.total(); n != 0 {
		t.Errorf("%d bytes are still promised", n)
	}
}
