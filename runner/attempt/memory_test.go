package attempt

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
)

func TestMemory(t *testing.T) {
	const gib = 1 << 30
	free := func(n int64) *fleet.Memory { return &fleet.Memory{Total: 64 * gib, Available: n} }
	people, automation := fleet.Spec{}, fleet.Spec{Origin: fleet.Origin{Kind: fleet.Automation}}
	needs := func(s fleet.Spec) fleet.Spec { s.Needs = &fleet.Needs{Memory: 8 * gib}; return s }
	for _, c := range []struct {
		name      string
		spec      fleet.Spec
		memory    *fleet.Memory
		permitted bool
		asked     bool
		code      fleet.Code
		after     time.Duration
		detail    string
	}{
		{name: "a person's", spec: people, memory: free(1)},
		{name: "enough", spec: needs(people), memory: free(8 * gib), asked: true},
		{name: "too little for it", spec: needs(people), memory: free(8*gib - 1), asked: true, code: fleet.MemoryTight, after: time.Minute, detail: "8 GiB of memory are available, the job needs 8 GiB"},
		{name: "nobody knows", spec: needs(people), asked: true, code: fleet.MemoryTight, after: time.Minute, detail: "is not known"},
		{name: "only the total is known", spec: needs(people), memory: free(0), asked: true, code: fleet.MemoryTight, after: time.Minute, detail: "is not known"},
		{name: "it may have begun", spec: needs(people), permitted: true},
		{name: "an automation's share", spec: automation, memory: free(7 * gib), asked: true},
		{name: "less than a share", spec: automation, memory: free(7*gib - 1), asked: true, code: fleet.MemoryLow, after: fleet.HostFaultPause, detail: "3 GiB are kept, and a job of an automation may take 4 GiB"},
		{name: "less than is kept", spec: automation, memory: free(gib), asked: true, code: fleet.MemoryLow, after: fleet.HostFaultPause, detail: "1 GiB of memory are available"},
		{name: "an automation, nobody knows", spec: automation, asked: true},
		{name: "an automation that needs more than a share", spec: needs(automation), memory: free(7 * gib), asked: true, code: fleet.MemoryTight, after: time.Minute, detail: "the job needs 8 GiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := false
			h := &Host{Dir: "/d", Logger: slog.New(slog.DiscardHandler), Memory: func(context.Context) *fleet.Memory { asked = true; return c.memory }}
			a := h.attempt(Assignment{Job: "j", Spec: c.spec})
			if c.permitted {
				close(a.permit)
			}
			err := a.memory(t.Context(), Policy{MemoryKept: 3 * gib, MemoryShare: 4 * gib})
			var d *decline
			if errors.As(err, &d); (err == nil) != (c.code == "") || asked != c.asked {
				t.Fatalf("%v, asked %v; want %s, asked %v", err, asked, c.code, c.asked)
			}
			if d != nil && (d.code != c.code || d.after != c.after || d.block || !strings.Contains(d.detail, c.detail)) {
				t.Errorf("declined %+v", d)
			}
		})
	}
}

// TestBothLooks: what a job needs is looked at before anything is checked out, and again
// before its accept. What went in between is found by the second look.
func TestBothLooks(t *testing.T) {
	const gib = 1 << 30
	plenty := fleet.Volume{Known: true, Free: 90 * gib, Total: 100 * gib, Inodes: -1}
	spec := fleet.Spec{Harness: "exec", Kind: fleet.KindExec, Origin: fleet.Origin{Kind: fleet.Automation}, Needs: &fleet.Needs{Docker: true}}
	type machine struct {
		space  fakeSpace
		docker fleet.Docker
		memory fleet.Memory
		policy Policy
	}
	for _, c := range []struct {
		name  string
		goes  func(*machine)
		first bool // the first look finds it too
		code  fleet.Code
	}{
		{"nothing", func(*machine) {}, false, ""},
		{"the workspace is full", func(m *machine) { m.space.workspace.Free = 19 * gib }, true, fleet.Storage},
		{"the cache's disk is full", func(m *machine) { m.space.cache.Free = 19 * gib }, true, fleet.Storage},
		{"a mount hangs", func(m *machine) { m.space.workspace = fleet.Volume{Detail: "it hangs"} }, true, fleet.Storage},
		{"the owner wants more left", func(m *machine) { m.policy.Floors.Start = 95 * gib }, true, fleet.Storage},
		{"Docker is gone", func(m *machine) { m.docker.State = fleet.DockerDown }, true, fleet.DockerMissing},
		{"Compose is gone", func(m *machine) { m.docker.Compose = "" }, true, fleet.DockerMissing},
		{"memory is taken", func(m *machine) { m.memory.Available = 6 * gib }, true, fleet.MemoryLow},
		{"the owner takes no automation", func(m *machine) { m.policy.Origins = []string{fleet.Manual} }, false, fleet.OwnerPolicy},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machine{
				space: fakeSpace{workspace: plenty, cache: plenty, other: plenty}, docker: fleet.Docker{State: fleet.DockerReady, Compose: "2.40"}, memory: fleet.Memory{Available: 7 * gib},
				policy: Policy{Permissions: fleet.PermWorkspace, Floors: fleet.Floors{Select: 10 * gib, Start: 20 * gib}, MemoryKept: 3 * gib, MemoryShare: 4 * gib},
			}
			dir := t.TempDir()
			j, err := journal.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			f := fleet.Fence{Epoch: 1, Index: 1}
			if err := j.Begin(journal.Attempt{Job: "j", Fence: f, Order: "o"}); err != nil {
				t.Fatal(err)
			}
			h := &Host{
				Dir: dir, Journal: j, Space: &m.space, Logger: slog.New(slog.DiscardHandler), Policy: func() Policy { return m.policy },
				Docker: func(context.Context) fleet.Docker { return m.docker }, Memory: func(context.Context) *fleet.Memory { return &m.memory },
			}
			a := h.attempt(Assignment{Job: "j", Fence: f, Spec: spec})
			first := func() error { _, err := a.firstProbe(t.Context(), h.Policy()); return err }
			second := func() error { _, err := a.secondProbe(t.Context(), &readiness{dir: dir}); return err }
			if err := errors.Join(first(), second()); err != nil {
				t.Fatalf("a machine that is well: %v", err)
			}
			c.goes(&m)
			told := func(what string, err error, code fleet.Code) {
				t.Helper()
				var d *decline
				if errors.As(err, &d); (err == nil) != (code == "") || d != nil && d.code != code {
					t.Errorf("the %s look: %v; want %q", what, err, code)
				}
			}
			told("second", second(), c.code)
			if !c.first {
				c.code = ""
			}
			told("first", first(), c.code)
		})
	}
}
