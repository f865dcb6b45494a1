//go:build linux

package fault

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// work is jobs of which each leaves a trace of every execution: it appends to a file
// of its own when it begins and when it ends, so that a second execution shows.
type work struct {
	c      *cluster
	script string
	dir    string

	mu     sync.Mutex
	jobs   map[string]string // id of each job that was acknowledged, by its name
	tenths map[string]int    // how long each takes
}

func (c *cluster) work() *work {
	c.t.Helper()
	w := &work{c: c, dir: filepath.Join(c.dir, "ran"), jobs: map[string]string{}, tenths: map[string]int{}}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	w.script = c.write(filepath.Join(c.dir, "work.sh"), `echo began >> "$1/$2"
i=0
while [ $i -lt $3 ]; do echo "$2 line $i"; i=$((i+1)); sleep 0.1; done
echo "$2 last"
echo ended >> "$1/$2"
`)
	return w
}

// argv is the job of a name that takes about so many tenths of a second.
func (w *work) argv(name string, tenths int) []string {
	return []string{"sh", w.script, w.dir, name, fmt.Sprint(tenths)}
}

// submit hands a job in at any hub, again and again under one key, until it was
// acknowledged.
func (w *work) submit(name string, tenths int) (id string) {
	w.c.t.Helper()
	id, err := w.trySubmit(name, tenths, time.Minute)
	if err != nil {
		w.c.t.Fatal(err)
	}
	return id
}

// trySubmit is submit that gives up in time.
func (w *work) trySubmit(name string, tenths int, within time.Duration) (id string, err error) {
	body := api.Submit{Kind: fleet.KindExec, Argv: w.argv(name, tenths)}
	key := "work-" + filepath.Base(w.c.dir) + "-" + name
	err = fmt.Errorf("no hub runs")
	for deadline := time.Now().Add(within); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		for _, h := range w.c.likely() {
			var a answer
			if a, err = h.ask(http.MethodPost, "/v1/jobs", key, body, 4*time.Second); err != nil {
				continue
			}
			if a.status/100 != 2 {
				err = fmt.Errorf("%s answered %d: %s", h.called, a.status, a.body)
				continue
			}
			var j api.Job
			if err := json.Unmarshal(a.body, &j); err != nil {
				return "", fmt.Errorf("read what %s answered: %w: %s", h.called, err, a.body)
			}
			w.c.answers.Store(h)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.jobs[name], w.tenths[name] = string(j.ID), tenths
			return string(j.ID), nil
		}
	}
	return "", fmt.Errorf("job %s was not taken within %s: %w", name, within, err)
}

// traces is what the job's file says.
func (w *work) traces(name string) string {
	b, _ := os.ReadFile(filepath.Join(w.dir, name))
	return string(b)
}

// output is what the job prints.
func (w *work) output(name string, tenths int) string {
	var b strings.Builder
	for i := range tenths {
		fmt.Fprintf(&b, "%s line %d\n", name, i)
	}
	fmt.Fprintf(&b, "%s last\n", name)
	return b.String()
}

// running submits a job and waits until it has printed something that the cluster has.
func (w *work) running(name string, tenths int) (id string) {
	w.c.t.Helper()
	id = w.submit(name, tenths)
	w.c.eventually(40*time.Second, "job "+name+" is under way and its output is kept", func() bool {
		return strings.Contains(w.c.log(id), name+" line 2\n")
	})
	return id
}

// log is what is kept of a job's output, from the first hub that tells.
func (c *cluster) log(id string) (out string) {
	for _, h := range c.likely() {
		if h.p.Runs() {
			if text, err := h.log(id); err == nil {
				c.answers.Store(h)
				return text
			}
		}
	}
	return ""
}

func (h *hub) log(id string) (text string, err error) {
	err = h.get("/v1/jobs/"+id+"/log", &text)
	return text, err
}

// check holds a job to its promise: it succeeded, ran once, whole, and all that it
// printed is kept, whichever of the hubs is asked.
func (w *work) check(name string, within time.Duration, at ...*hub) {
	c := w.c
	c.t.Helper()
	id := w.jobs[name]
	j := c.ended(id, within)
	if j.State != fleet.Succeeded {
		c.t.Errorf("job %s is %s (%s); want succeeded", name, j.State, j.Reason.Detail)
	}
	if got := w.traces(name); got != "began\nended\n" {
		c.t.Errorf("job %s ran as %q; want once, whole", name, got)
	}
	accepted := 0
	for _, turn := range j.Turns {
		for _, a := range turn.Attempts {
			if a.AcceptedAt != nil {
				accepted++
			}
		}
	}
	if accepted != 1 {
		c.t.Errorf("job %s was accepted %d times; want once", name, accepted)
	}
	w.kept(name, at...)
}

// kept sees that all that a job printed is there, whichever of the hubs is asked.
func (w *work) kept(name string, at ...*hub) {
	c := w.c
	c.t.Helper()
	if at == nil {
		at = c.hubs
	}
	id, want := w.jobs[name], w.output(name, w.tenths[name])
	for _, h := range at {
		if !h.p.Runs() {
			continue
		}
		var got string
		var err error
		for deadline := time.Now().Add(30 * time.Second); ; <-time.After(100 * time.Millisecond) {
			if got, err = h.log(id); err == nil && got == want {
				break
			}
			if time.Now().After(deadline) {
				c.t.Errorf("hub %s gives %q, %v as the output of job %s (%s); want %q", h.called, got, err, name, id, want)
				break
			}
		}
	}
}
