package runner

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"aead.dev/minisign"

	hubsession "tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner/format"
	"tugline.dev/tugline/runner/update"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

func TestTheOwnersGate(t *testing.T) {
	open := gate{policy: "auto", key: true, hours: true, idle: true}
	for _, c := range []struct {
		name   string
		change func(*gate)
		why    string
	}{
		{"auto, idle", func(*gate) {}, ""},
		{"a job is here", func(g *gate) { g.idle = false }, "no job"},
		{"outside the hours", func(g *gate) { g.hours = false }, "hours"},
		{"off", func(g *gate) { g.policy = "off" }, "off"},
		{"off, although it was approved", func(g *gate) { g.policy, g.approved = "off", true }, "off"},
		{"ask", func(g *gate) { g.policy = "ask" }, "--approve"},
		{"ask, approved", func(g *gate) { g.policy, g.approved = "ask", true }, ""},
		{"ask, approved outside the hours", func(g *gate) { g.policy, g.approved, g.hours = "ask", true, false }, ""},
		{"auto, approved outside the hours", func(g *gate) { g.approved, g.hours = true, false }, ""},
		{"approved, and a job is here", func(g *gate) { g.policy, g.approved, g.idle = "ask", true, false }, "no job"},
		{"no key", func(g *gate) { g.key = false }, "no key"},
		{"from a package", func(g *gate) { g.fixed = "managed by deb" }, "managed by deb"},
		{"from a package, approved", func(g *gate) { g.fixed, g.approved = "managed by deb", true }, "managed by deb"},
		{"a policy that is not known", func(g *gate) { g.policy = "" }, "--approve"},
	} {
		g := open
		c.change(&g)
		if got := g.closed(); (got == "") != (c.why == "") || !strings.Contains(got, c.why) {
			t.Errorf("%s: %q, want %q", c.name, got, c.why)
		}
	}
}

func TestHoursOfUpdates(t *testing.T) {
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.Local) // a Monday
	for rules, want := range map[string]bool{
		"":                                  true,
		"hours: {updates: ['02:00-05:00']}": false,
		"hours: {updates: ['11:00-13:00']}": true,
		"hours: {updates: ['Sat', 'Mon']}":  true,
		"hours: {updates: ['Sun']}":         false,
		"hours: {quiet: ['11:00-13:00']}":   true,
	} {
		o, err := ParseOwner([]byte(rules))
		if err != nil {
			t.Fatal(err)
		}
		if got := o.updatesAt(noon); got != want {
			t.Errorf("%s: %v, want %v", rules, got, want)
		}
	}
	if _, err := ParseOwner([]byte("hours: {updates: ['late']}")); err == nil {
		t.Error("hours that cannot be read are taken")
	}
}

// updateRig is a hub that offers a release to a runner which lies in a directory of
// versions.
type updateRig struct {
	*testHub
	t       *testing.T
	key     string
	priv    minisign.PrivateKey
	program []byte // version 2.0.0
	offer   atomic.Pointer[wire.Update]
	prefix  string
	dir     string
	managed string // by which package manager
}

// firstProgram and nextProgram are the versions, which are built once.
var firstProgram, nextProgram = program("1.0.0"), program("2.0.0")

func program(version string) func() ([]byte, error) {
	return sync.OnceValues(func() ([]byte, error) {
		dir, err := os.MkdirTemp("", "runner-program-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		file := filepath.Join(dir, "tugline")
		build := exec.Command("go", "build", "-o", file, "-ldflags", "-s -w -X main.version="+version+" -X main.kind=good", "./update/testdata/app")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // under the race detector too: nothing more is compiled for it
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", version, err, out)
		}
		return os.ReadFile(file)
	})
}

func built(t *testing.T, program func() ([]byte, error)) []byte {
	t.Helper()
	b, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newUpdateRig(t *testing.T) *updateRig {
	pub, priv, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	g := &updateRig{t: t, key: pub.String(), priv: priv, prefix: t.TempDir(), dir: t.TempDir()}
	g.testHub = newHub(t, func(c *hubsession.Config) {
		c.Update = func(state.View, *fleet.Runner) *wire.Update { return g.offer.Load() }
		c.ActiveInterval, c.IdleInterval = 50*time.Millisecond, 50*time.Millisecond
	})
	g.must(&state.Set{Name: fleet.SettingReleaseKey, Value: g.key})
	one := filepath.Join(g.prefix, "versions", "1.0.0", "tugline")
	if err := os.MkdirAll(filepath.Dir(one), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(one, built(t, firstProgram), 0o755); err != nil {
		t.Fatal(err)
	}
	g.program = slices.Clone(built(t, nextProgram))
	if err := os.Symlink("versions/1.0.0", filepath.Join(g.prefix, "current")); err != nil {
		t.Fatal(err)
	}
	return g
}

// runner enrols a runner with rules of its owner.
func (g *updateRig) runner(rules string) *testRunner {
	g.t.Helper()
	if err := os.WriteFile(OwnerFile(g.dir), []byte(rules), 0o600); err != nil {
		g.t.Fatal(err)
	}
	s, err := update.Open(filepath.Join(g.prefix, "current", "tugline"), slog.New(slog.DiscardHandler))
	if err != nil {
		g.t.Fatal(err)
	}
	return g.newRunner(func(c *Config) {
		c.Dir, c.Versions, c.Version, c.ManagedBy, c.UpdatedBy = g.dir, s, "1.0.0", g.managed, "a command"
	})
}

// release puts version 2.0.0 on the hub and offers it.
func (g *updateRig) release(adjust ...func(*wire.Update)) {
	g.t.Helper()
	sum := sha256.Sum256(g.program)
	u := &wire.Update{
		Version: "2.0.0", OS: runtime.GOOS, Arch: runtime.GOARCH, SHA256: fleet.Digest(hex.EncodeToString(sum[:])), Size: int64(len(g.program)),
		Signature: string(minisign.SignWithComments(g.priv, g.program, update.Comment("2.0.0", runtime.GOOS, runtime.GOARCH), "")),
	}
	g.put(g.program)
	for _, f := range adjust {
		f(u)
	}
	g.offer.Store(u)
}

func (g *updateRig) facts(id fleet.RunnerID) fleet.RunnerUpdate {
	if r, ok := g.View().Runner(id); ok && r.Facts.Update != nil {
		return *r.Facts.Update
	}
	return fleet.RunnerUpdate{}
}

func (g *updateRig) present() string {
	to, err := os.Readlink(filepath.Join(g.prefix, "current"))
	if err != nil {
		g.t.Fatal(err)
	}
	return filepath.Base(to)
}

// updates waits until a runner has ended because another version is there.
func (g *updateRig) updates(r *testRunner) {
	g.t.Helper()
	select {
	case err := <-r.done:
		r.done <- err
		if !errors.Is(err, ErrUpdated) || g.present() != "2.0.0" {
			g.t.Fatalf("it ended with %v, and the present version is %s", err, g.present())
		}
	case <-time.After(patience):
		g.t.Fatalf("it does not update itself: %+v", g.facts(r.id))
	}
}

func (g *updateRig) waits(r *testRunner, what string) {
	g.t.Helper()
	eventually(g.t, "the hub to hear that the update waits for "+what, func() bool {
		u := g.facts(r.id)
		return u.Offered == "2.0.0" && strings.Contains(u.Waits, what)
	}, func() any { return g.facts(r.id) })
	if g.present() != "1.0.0" {
		g.t.Fatal("it did not wait")
	}
}

// beatsOn waits until a runner has looked for its owner's word again and told of it.
func (g *updateRig) beatsOn(r *testRunner) {
	g.t.Helper()
	end := time.Now().Add(2 * approvePoll)
	eventually(g.t, "the runner to go on", func() bool { p, _ := g.srv.PresenceOf(r.id); return p.LastBeat.After(end) })
}

func TestAnUpdateIsTakenWhenNoJobIsHere(t *testing.T) {
	t.Parallel()
	g := newUpdateRig(t)
	r := g.runner("updates: auto\n")
	gate := filepath.Join(t.TempDir(), "gate")
	j, f := g.run(r.id, "sh", "-c", "until [ -e "+gate+" ]; do sleep 0.05; done")
	eventually(t, "the job to run", func() bool { return g.attempt(j, f).StartedAt != nil })
	g.release()
	g.waits(r, "no job is here")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g.updates(r)
	g.ends(j, fleet.Succeeded)
}

// A disk that is too full for jobs is none for an update, which may be what mends it.
func TestAnUpdateComesUnderStoragePressure(t *testing.T) {
	g := newUpdateRig(t)
	r := g.runner("updates: auto\nmin_free_bytes: 900TiB\n")
	eventually(t, "the hub to hear that nothing new is taken", func() bool {
		p, _ := g.srv.PresenceOf(r.id)
		return strings.Contains(p.Declining, "free")
	}, func() any { p, _ := g.srv.PresenceOf(r.id); return p })
	g.release()
	g.updates(r)
}

func TestAskWaitsForTheOwner(t *testing.T) {
	t.Parallel()
	g := newUpdateRig(t)
	r := g.runner("updates: ask\nhours: {updates: ['00:00-00:01']}\n")
	g.release()
	g.waits(r, "--approve")
	w, ok, err := Waiting(g.dir)
	if err != nil || !ok || w.Version != "2.0.0" {
		t.Fatalf("waiting: %+v %v %v", w, ok, err)
	}
	other := w
	other.SHA256 = fleet.Digest(strings.Repeat("0", 64))
	if err := Approve(g.dir, other); err != nil { // it is not this that was approved
		t.Fatal(err)
	}
	g.beatsOn(r)
	g.waits(r, "--approve")
	if err := Approve(g.dir, w); err != nil {
		t.Fatal(err)
	}
	g.updates(r)
}

func TestOffIsOffForEverybody(t *testing.T) {
	t.Parallel()
	g := newUpdateRig(t)
	r := g.runner("updates: off\n")
	g.release(func(u *wire.Update) { u.Asked = "a person" })
	g.waits(r, "off in runner.yaml")
	if err := Approve(g.dir, WaitingUpdate{Version: "2.0.0", SHA256: g.offer.Load().SHA256, Asked: "a person"}); err != nil {
		t.Fatal(err)
	}
	g.beatsOn(r)
	g.waits(r, "off in runner.yaml")
	if u := g.facts(r.id); u.Policy != "off" {
		t.Errorf("facts: %+v", u)
	}
}

func TestPackagesAreLeftToTheirManager(t *testing.T) {
	t.Parallel()
	g := newUpdateRig(t)
	g.managed = "deb"
	r := g.runner("updates: auto\n")
	g.release()
	g.waits(r, "managed by deb; on the machine `a command` updates it")
	if u := g.facts(r.id); u.Policy != "off" {
		t.Errorf("facts: %+v", u)
	}
}

// A failed update leaves the runner at work, and is told.
func TestAFailedUpdateIsTold(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*updateRig, *wire.Update){
		"signed by another key": func(g *updateRig, u *wire.Update) {
			_, priv, err := minisign.GenerateKey(rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			u.Signature = string(minisign.SignWithComments(priv, g.program, update.Comment("2.0.0", u.OS, u.Arch), ""))
		},
		"signed as another version": func(g *updateRig, u *wire.Update) {
			u.Signature = string(minisign.SignWithComments(g.priv, g.program, update.Comment("1.9.0", u.OS, u.Arch), ""))
		},
		"not what it says": func(g *updateRig, u *wire.Update) {
			u.Version = "2.1.0"
			u.Signature = string(minisign.SignWithComments(g.priv, g.program, update.Comment("2.1.0", u.OS, u.Arch), ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newUpdateRig(t)
			r := g.runner("updates: auto\n")
			g.release(func(u *wire.Update) { spoil(g, u) })
			eventually(t, "the hub to hear that it failed", func() bool { return g.facts(r.id).State == "failed" }, func() any { return g.facts(r.id) })
			u := g.facts(r.id)
			if u.Why == "" || u.To != g.offer.Load().Version {
				t.Errorf("facts: %+v", u)
			}
			eventually(t, "its owner to be told", func() bool {
				is, _ := g.View().Runner(r.id)
				return slices.ContainsFunc(is.Facts.Alerts, func(a string) bool { return strings.Contains(a, "update to "+u.To+" failed") })
			})
			j, _ := g.run(r.id, "true")
			g.ends(j, fleet.Succeeded)
			eventually(t, "it not to be tried again", func() bool { return strings.Contains(g.facts(r.id).Waits, "was tried") }, func() any { return g.facts(r.id) })
			if g.present() != "1.0.0" {
				t.Errorf("the present version is %s", g.present())
			}
		})
	}
}

// What is not for this runner is told, and leaves no trace.
func TestAnOlderReleaseIsNotTaken(t *testing.T) {
	t.Parallel()
	g := newUpdateRig(t)
	r := g.runner("updates: auto\n")
	g.release(func(u *wire.Update) { u.Version = "0.9.0" })
	eventually(t, "the hub to hear why", func() bool { return strings.Contains(g.facts(r.id).Waits, "older than 1.0.0") }, func() any { return g.facts(r.id) })
	g.offer.Store(nil)
	eventually(t, "the offer to be over", func() bool { u := g.facts(r.id); return u.Offered == "" && u.Waits == "" && u.State == "" }, func() any { return g.facts(r.id) })
}

// TestWhenAVersionIsGood: a hub that can't be reached makes no start a failed one, and a
// version is confirmed ten minutes after the hub answered it first.
func TestWhenAVersionIsGood(t *testing.T) {
	t.Parallel()
	g := newUpdateRig(t)
	r := g.runner("updates: auto\n")
	g.release()
	g.updates(r)
	two, err := update.Open(filepath.Join(g.prefix, "current", "tugline"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	record := func() update.Record {
		rec, err := two.Standing()
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	r.cfg.Versions, r.updates.acked = two, make(chan struct{})
	r.cfg.Version, r.formats = "2.0.0", format.Table{{}}
	formats := func() string {
		b, err := os.ReadFile(filepath.Join(g.dir, "format.json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	synctest.Test(t, func(t *testing.T) {
		if err := two.Begin(); err != nil || record().Starts != 1 {
			t.Fatalf("%v, %d starts", err, record().Starts)
		}
		ctx, cancel := context.WithCancel(t.Context())
		acked := make(chan struct{})
		r.updates.acked = acked
		done := make(chan struct{})
		go func() { defer close(done); r.watchVersion(ctx) }()
		time.Sleep(update.StartTime - time.Second)
		synctest.Wait()
		if record().Starts != 1 {
			t.Error("the start counts as good too early")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if rec := record(); rec.Starts != 0 || rec.State != update.Trying {
			t.Errorf("after an hour without a hub the record is %+v", rec)
		}
		close(acked)
		time.Sleep(update.ConfirmTime - time.Second)
		synctest.Wait()
		if rec := record(); rec.State != update.Trying {
			t.Errorf("too early the record is %+v", rec)
		}
		if f := formats(); strings.Contains(f, "2.0.0") {
			t.Errorf("too early the data directory may have a newer format: %s", f)
		}
		time.Sleep(time.Second + approvePoll)
		synctest.Wait()
		if rec := record(); rec.State != update.Confirmed {
			t.Errorf("ten minutes after the hub answered the record is %+v", rec)
		}
		if f := formats(); f != `{"format":1,"confirmed":"2.0.0"}`+"\n" {
			t.Errorf("then the data directory says %s", f)
		}
		cancel()
		<-done
	})
}
