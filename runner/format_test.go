package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/runner/format"
	"tugline.dev/tugline/shared/fleet"
)

// nextFormat is the table of a version whose identity has a field more.
var nextFormat = format.Table{{Files: []string{"identity.json"}, Do: func(dir string) error {
	var id map[string]any
	b, err := os.ReadFile(identityFile(dir))
	if err == nil {
		err = json.Unmarshal(b, &id)
	}
	if err != nil {
		return err
	}
	id["of_format_2"] = true
	if b, err = json.Marshal(id); err != nil {
		return err
	}
	return durable.Replace(identityFile(dir), b, 0o600)
}}}

// A newer version that is not confirmed is taken back in the middle of its jobs, and the one
// before goes on with them. Once it is confirmed the directory is its own.
func TestAVersionIsTakenBack(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	gate := filepath.Join(t.TempDir(), "gate")
	one := h.newRunner(func(c *Config) { c.Version = "1.0.0" })
	waits := []string{"sh", "-c", "echo begun; until [ -e " + gate + " ]; do sleep 0.05; done; echo over"}
	of := func(version string, formats format.Table) *Runner {
		cfg := one.cfg
		cfg.Version = version
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		r.formats = formats
		return r
	}
	says := func(name string) string {
		b, err := os.ReadFile(filepath.Join(one.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	id := says("identity.json")
	j, f := h.run(one.id, waits...)
	eventually(t, "the job to run", func() bool { return h.attempt(j, f).StartedAt != nil })
	one.end()

	two := h.connected(of("2.0.0", nextFormat))
	k, g := h.run(two.id, waits...)
	eventually(t, "a job of the newer version to run", func() bool { return h.attempt(k, g).StartedAt != nil })
	two.end()
	if got := says("format.json"); got != `{"format":1}`+"\n" || says("identity.json") != id {
		t.Fatalf("a version that is not confirmed has changed the directory: %s", got)
	}

	one = h.connected(of("1.0.0", format.Table{}))
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for job, fence := range map[fleet.JobID]fleet.Fence{j: f, k: g} {
		h.ends(job, fleet.Succeeded)
		h.sealed(job, fence)
		if got := h.text(job, fence, fleet.FrameStdout); got != "begun\nover\n" || len(h.job(job).Turn().Attempts) != 1 {
			t.Errorf("job %s has %d attempts and said %q", job, len(h.job(job).Turn().Attempts), got)
		}
	}
	one.end()

	two = h.connected(of("2.0.0", nextFormat))
	if err := two.confirm(); err != nil {
		t.Fatal(err)
	}
	two.end()
	two = h.connected(of("2.0.0", nextFormat))
	two.end()
	if got := says("format.json"); got != `{"format":2,"confirmed":"2.0.0"}`+"\n" || says("identity.json") == id || says("format-1/identity.json") != id {
		t.Errorf("after its confirmation the directory says %s", got)
	}
	was := says("journal.log")
	err := of("1.0.0", format.Table{}).Run(t.Context())
	var newer *durable.Newer
	if !errors.As(err, &newer) || newer.Format != 2 || !bytes.Equal([]byte(was), []byte(says("journal.log"))) {
		t.Errorf("the version before starts on it: %v", err)
	}
}
