//go:build linux

package fault

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// backup makes one with the cluster's keys in it, and gives its file and that of the
// passphrase.
func (c *cluster) backup() (file, pass string) {
	c.t.Helper()
	pass = c.write(filepath.Join(c.dir, "pass"), "correct horse\n")
	file = filepath.Join(c.dir, "cluster.backup.tar")
	c.run("hub", "backup", file, "--passphrase-file", pass)
	return file, pass
}

// epoch waits until all hubs that run are in an epoch, or a later one.
func (c *cluster) epoch(want uint64) {
	c.t.Helper()
	c.eventually(40*time.Second, "the hubs are in the new epoch", func() bool {
		for _, h := range c.hubs {
			var s api.Status
			if h.p.Runs() && (h.get("/v1/status", &s) != nil || s.Epoch < want) {
				return false
			}
		}
		return true
	})
}

// orphan waits until the finished attempt of a job that is not on record is listed, has
// it adopted, and sees that the job then is what it was.
func (w *work) orphan(name string) {
	c := w.c
	c.t.Helper()
	if _, ok := c.job(w.jobs[name]); ok {
		c.t.Errorf("job %s is on record; it should have been lost", name)
	}
	var found api.Orphan
	c.eventually(60*time.Second, "the attempt of job "+name+" is listed as an orphan, with its output", func() bool {
		var os api.Orphans
		if !c.get("/v1/orphans?consistent", &os) {
			return false
		}
		for _, o := range os.Orphans {
			if string(o.Job) == w.jobs[name] && o.LogSealed {
				found = o
				return true
			}
		}
		return false
	})
	if got := w.traces(name); got != "began\nended\n" {
		c.t.Errorf("job %s ran as %q before its record was adopted; want once, whole", name, got)
	}
	c.run("job", "orphans", "adopt", found.ID)
	w.check(name, 40*time.Second)
}

// The cluster is set back to a backup under running jobs. What the backup knows goes on
// and ends once; what it does not know runs to its end and can be adopted; a revocation
// that is younger is repeated.
func TestRestoreUnderRunningJobs(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	w := c.work()
	w.running("known", 150)
	w.submit("done", 2)
	w.check("done", 40*time.Second)
	var k api.Token
	if err := json.Unmarshal([]byte(c.run("token", "create", "--name", "leaked", "--role", "viewer", "--json")), &k); err != nil {
		t.Fatal(err)
	}
	file, _ := c.backup()
	w.running("unknown", 100)
	c.run("token", "revoke", string(k.ID))
	out := c.run("hub", "restore", file, "--yes")
	if !strings.Contains(out, w.jobs["unknown"]) {
		t.Errorf("the restore does not name the job that is lost from the record:\n%s", out)
	}
	c.epoch(3) // raised before it was set back, and after
	c.voters(3)
	w.check("known", 60*time.Second)
	w.check("done", 20*time.Second)
	w.orphan("unknown")
	operator := c.token
	c.token = k.Secret
	for _, h := range c.hubs {
		if a, err := h.ask(http.MethodGet, "/v1/jobs", "", nil, askTime); err != nil || a.status != http.StatusUnauthorized {
			t.Errorf("hub %s answers the holder of a revoked token with %d (%v)", h.called, a.status, err)
		}
	}
	c.token = operator
	w.submit("after", 2)
	w.check("after", 60*time.Second)
}

// Two of three hubs are lost for good, and the one that is left lacks the newest job.
// It is recovered under running jobs: what it knows goes on and ends once, what it does
// not know becomes an orphan. New hubs join, and two are warned about.
func TestRecoverUnderRunningJobs(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	w := c.work()
	w.running("known", 200)
	lead := c.leader()
	left, other := c.others(lead)[0], c.others(lead)[1]
	left.unplug()
	w.running("unknown", 60)
	lead.p.Kill()
	other.p.Kill()
	lead.wipe()
	other.wipe()
	left.plug()
	left.p.Kill()
	out := c.run("hub", "recover", "--data-dir", left.dir)
	for _, want := range []string{"may be lost", w.jobs["known"], "hub ticket --role hub"} {
		if !strings.Contains(out, want) {
			t.Errorf("recover prints nothing of %q:\n%s", want, out)
		}
	}
	left.restart()
	c.epoch(2)
	w.orphan("unknown")
	lead.start("--ticket", c.hubTicket())
	c.eventually(60*time.Second, "a second hub votes, and the even number is warned about", func() bool {
		m, ok := c.members()
		return ok && strings.Contains(strings.Join(m.Warnings, "\n"), "2 voters")
	})
	other.start("--ticket", c.hubTicket())
	c.voters(3)
	w.check("known", 60*time.Second)
	w.submit("after", 2)
	w.check("after", 60*time.Second)
}

// All hubs are lost for good. One is made of a backup, under running jobs.
func TestRecoverFromBackup(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	w := c.work()
	w.running("known", 150)
	file, pass := c.backup()
	w.running("unknown", 50)
	for _, h := range c.hubs {
		h.p.Kill()
		h.wipe()
	}
	h := c.hubs[0]
	c.run("hub", "recover", "--data-dir", h.dir, "--from-backup", file, "--passphrase-file", pass)
	h.restart()
	if !h.identify() {
		t.Fatal("the recovered hub has no id")
	}
	c.epoch(2)
	w.orphan("unknown")
	for _, x := range c.hubs[1:] {
		x.start("--ticket", c.hubTicket())
	}
	c.voters(3)
	w.check("known", 60*time.Second)
	if b, err := os.ReadFile(filepath.Join(h.dir, "ca.pem")); err != nil || string(b) != c.cert() {
		t.Errorf("the recovered hub has another CA (%v)", err)
	}
	w.submit("after", 2)
	w.check("after", 60*time.Second)
	if j, ok := c.job(w.jobs["known"]); !ok || j.State != fleet.Succeeded {
		t.Errorf("the job that ran through it all is %s", j.State)
	}
}

func (c *cluster) cert() string {
	b, _ := os.ReadFile(c.ca)
	return string(b)
}
