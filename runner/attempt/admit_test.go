package attempt

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// fakeSpace is a disk as a test says it is.
type fakeSpace struct {
	workspace, cache, other fleet.Volume
	footprint               int64
	others                  int64
	cold                    bool
	promised                int64
}

func (s *fakeSpace) Look(_ context.Context, path string) fleet.Volume {
	v := s.other
	switch {
	case strings.HasSuffix(path, "/trees/repos"):
		v = s.cache
	case strings.Contains(path, "/trees/work"):
		v = s.workspace
	}
	v.Path = path
	return v
}

func (s *fakeSpace) Reserve(_ context.Context, _ fleet.Fence, bytes, floor int64) (fleet.Volume, int64, bool) {
	v := s.workspace
	v.Path = "/d/trees/work"
	ok := v.Known && v.Free-s.others-bytes >= floor
	if ok {
		s.promised = bytes
	}
	return v, s.others, ok
}

func (s *fakeSpace) Promise(_ fleet.Fence, bytes int64) { s.promised = bytes }
func (s *fakeSpace) Footprint(string) int64             { return s.footprint }
func (s *fakeSpace) Learn(string, int64)                {}
func (s *fakeSpace) Cold(string) bool                   { return s.cold }

func TestAdmit(t *testing.T) {
	const gib = 1 << 30
	disk := func(free int64) fleet.Volume {
		return fleet.Volume{Known: true, Free: free, Total: 100 * gib, Inodes: -1}
	}
	plenty := disk(90 * gib)
	full := func(v fleet.Volume) *fakeSpace { return &fakeSpace{workspace: v, cache: plenty, other: plenty} }
	repo := &fleet.Repo{URL: "https://h/a"}
	people, automation := fleet.Spec{Repo: repo}, fleet.Spec{Repo: repo, Origin: fleet.Origin{Kind: fleet.Automation}}
	scratch := fleet.Spec{}
	needy := fleet.Spec{Needs: &fleet.Needs{Disk: 30 * gib}}
	inodes := plenty
	inodes.Nodes, inodes.Inodes = 1000, 9
	policy := Policy{MinFree: gib, Floors: fleet.Floors{Select: 10 * gib, Start: 20 * gib}}
	for _, c := range []struct {
		name     string
		spec     fleet.Spec
		asked    int64 // by the assignment
		has      int64
		policy   *Policy
		space    *fakeSpace
		detail   string // of the refusal; none: it is taken
		tight    bool   // a job that takes less would be taken
		promised int64
	}{
		{name: "people, plenty", spec: people, space: full(plenty), promised: gib},
		{name: "people, just enough", spec: people, space: full(disk(gib)), promised: gib},
		{name: "people, below the owner's bound", spec: people, space: full(disk(gib - 1)), detail: "min_free_bytes"},
		{name: "people, below with what is promised", spec: people, space: &fakeSpace{workspace: disk(3 * gib), cache: plenty, other: plenty, others: 2*gib + 1}, tight: true, detail: "2 GiB of it promised to other jobs"},
		{name: "people, a large repository", spec: people, space: &fakeSpace{workspace: disk(6 * gib), cache: plenty, other: plenty, footprint: 5*gib + 1}, tight: true, detail: "this job may take 5 GiB"},
		{name: "people, a large repository that fits", spec: people, space: &fakeSpace{workspace: disk(6 * gib), cache: plenty, other: plenty, footprint: 5 * gib}, promised: 6 * gib},
		{name: "people, a large repository that is there", spec: people, has: 5 * gib, space: &fakeSpace{workspace: disk(2 * gib), cache: plenty, other: plenty, footprint: 5 * gib}, promised: gib},
		{name: "people, the hub knows more", spec: people, asked: 9 * gib, space: full(disk(8 * gib)), tight: true, detail: "this job may take 8 GiB"},
		{name: "people, the repository is not cached yet", spec: people, asked: 4 * gib, space: &fakeSpace{workspace: disk(7*gib - 1), cache: plenty, other: plenty, cold: true}, tight: true, detail: "this job may take 6 GiB"},
		{name: "automation, the repository is not cached yet", spec: automation, asked: 4 * gib, space: &fakeSpace{workspace: disk(27 * gib), cache: plenty, other: plenty, cold: true}, promised: 7 * gib},
		{name: "people, an owner without a bound", spec: people, policy: &Policy{}, space: full(disk(0)), promised: gib},
		{name: "people, the data directory is full", spec: people, space: &fakeSpace{workspace: plenty, cache: plenty, other: disk(5)}, detail: "0 MiB are free at"},
		{name: "people, nobody knows", spec: people, space: &fakeSpace{workspace: fleet.Volume{Detail: "it hangs"}, cache: plenty, other: plenty}, detail: "not known: it hangs"},
		{name: "people, without a repository", spec: scratch, space: full(disk(gib))},
		{name: "what the job needs", spec: needy, space: full(disk(29 * gib)), tight: true, detail: "the job needs 30 GiB"},
		{name: "what the job needs is there", spec: needy, space: full(disk(30 * gib))},
		{name: "automation, plenty", spec: automation, space: full(plenty), promised: gib},
		{name: "automation, just enough", spec: automation, space: full(disk(21 * gib)), promised: gib},
		{name: "automation, into the floor", spec: automation, space: full(disk(21*gib - 1)), tight: true, detail: "20 GiB are to stay free: the floor for automations"},
		{name: "automation, the cache is full", spec: automation, space: &fakeSpace{workspace: plenty, cache: disk(19 * gib), other: plenty}, detail: "/trees/repos, and 20 GiB are to stay free"},
		{name: "automation, few inodes", spec: automation, space: full(inodes), detail: "9 of 1000 inodes"},
		{name: "people, few inodes", spec: people, space: full(inodes), promised: gib},
		{name: "automation, the cache is not known", spec: automation, space: &fakeSpace{workspace: plenty, other: plenty}, detail: "not known"},
		{name: "automation, no floor", spec: automation, policy: &Policy{}, space: full(disk(gib)), promised: gib},
		{name: "automation, a floor for its place above that for its start", spec: automation, policy: &Policy{Floors: fleet.Floors{Select: 50 * gib, Start: gib}}, space: full(disk(50 * gib)), tight: true, detail: "50 GiB are to stay free"},
		{name: "automation, an owner's bound above the floor", spec: automation, policy: &Policy{MinFree: 60 * gib, Floors: policy.Floors}, space: full(disk(50 * gib)), detail: "min_free_bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &Host{Dir: "/d", Space: c.space, Logger: slog.New(slog.DiscardHandler)}
			a := h.attempt(Assignment{Job: "j", Spec: c.spec, Reserve: c.asked})
			a.cold = c.space.cold
			p := policy
			if c.policy != nil {
				p = *c.policy
			}
			err := a.admit(t.Context(), p, c.has)
			var d *decline
			if errors.As(err, &d); (err == nil) != (c.detail == "") {
				t.Fatalf("%v; want %q", err, c.detail)
			}
			code, after := fleet.Storage, fleet.HostFaultPause
			if c.tight {
				code, after = fleet.StorageTight, time.Minute
			}
			if d != nil && (d.code != code || d.after != after || d.block || !strings.Contains(d.detail, c.detail)) {
				t.Errorf("declined %+v; want %s for %s and a word about %q", d, code, after, c.detail)
			}
			if c.space.promised != c.promised {
				t.Errorf("%d bytes are promised, want %d", c.space.promised, c.promised)
			}
		})
	}
}

func TestDockerIsAskedWhereItIsNeeded(t *testing.T) {
	ready := fleet.Docker{State: fleet.DockerReady, Version: "29.1", Compose: "2.40"}
	for _, c := range []struct {
		name   string
		asg    Assignment
		docker fleet.Docker
		asked  bool
		detail string
	}{
		{name: "not needed", docker: fleet.Docker{State: fleet.DockerAbsent}},
		{name: "needed by the job", asg: Assignment{Spec: fleet.Spec{Needs: &fleet.Needs{Docker: true}}}, docker: ready, asked: true},
		{name: "needed, as was learned", asg: Assignment{Docker: true}, docker: ready, asked: true},
		{name: "down", asg: Assignment{Docker: true}, docker: fleet.Docker{State: fleet.DockerDown, Detail: "connection refused"}, asked: true, detail: "is down: connection refused"},
		{name: "no answer", asg: Assignment{Docker: true}, docker: fleet.Docker{State: fleet.DockerUnknown}, asked: true, detail: "is unknown"},
		{name: "no Compose", asg: Assignment{Docker: true}, docker: fleet.Docker{State: fleet.DockerReady, Version: "29.1"}, asked: true, detail: "Compose does not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := false
			h := &Host{Dir: "/d", Logger: slog.New(slog.DiscardHandler), Docker: func(context.Context) fleet.Docker { asked = true; return c.docker }}
			err := h.attempt(c.asg).docker(t.Context())
			var d *decline
			if errors.As(err, &d); (err == nil) != (c.detail == "") || asked != c.asked {
				t.Fatalf("%v, asked %v", err, asked)
			}
			if d != nil && (d.code != fleet.DockerMissing || d.after != dockerAfter || !strings.Contains(d.detail, c.detail)) {
				t.Errorf("declined %+v", d)
			}
		})
	}
}

func TestOwnersModels(t *testing.T) {
	p := Policy{Permissions: fleet.PermFull, Models: map[string][]string{"codex": {"a", "b"}, "claude": nil}}
	for _, c := range []struct {
		harness, model string
		refused        bool
	}{{"codex", "a", false}, {"codex", "c", true}, {"codex", "", false}, {"claude", "c", false}, {"opencode", "x/y", false}} {
		_, d := p.permit(fleet.Spec{Kind: fleet.KindAgent, Harness: c.harness}, c.model)
		if (d != nil) != c.refused || d != nil && d.code != fleet.ModelMissing {
			t.Errorf("%s with %q: %v", c.harness, c.model, d)
		}
	}
}

// What a directory takes is what its files take: holes do not count, and neither does
// what links lead to.
func TestMeasure(t *testing.T) {
	dir, far := t.TempDir(), t.TempDir()
	write := func(path string, n int) {
		t.Helper()
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(dir, "a"), 1<<20)
	write(filepath.Join(dir, "sub", "b"), 1<<20)
	write(filepath.Join(far, "c"), 1<<20)
	if err := os.Symlink(far, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	hole, err := os.Create(filepath.Join(dir, "hole"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(hole.Truncate(1<<40), hole.Close()); err != nil {
		t.Fatal(err)
	}
	if n := measure(t.Context(), dir); n < 2<<20 || n > 5<<19 {
		t.Errorf("%d bytes, want about 2 MiB", n)
	}
	if n := measure(t.Context(), filepath.Join(dir, "nothing")); n != 0 {
		t.Errorf("of nothing %d bytes", n)
	}
}

func TestPromptOfATurnThatGoesOn(t *testing.T) {
	if got := goOn("build it"); !strings.HasSuffix(got, "\n\nbuild it") || !strings.Contains(got, "interrupted") {
		t.Errorf("%q", got)
	}
	if got := goOn(strings.Repeat("x", fleet.MaxPrompt)); len(got) > fleet.MaxPrompt || strings.Contains(got, "xxx") {
		t.Errorf("a prompt of the greatest length becomes one of %d bytes", len(got))
	}
}
