package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner/probe"
	"tugline.dev/tugline/shared/fleet"
)

// smallDisk mounts a file system of so many MiB.
func smallDisk(t *testing.T, dir string, mib int) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", mib)); err != nil {
		t.Fatalf("mount a small file system, which this test needs root for: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// Many at once want a large part of a small disk, write what they were promised, and
// clean up: none of them ever finds the disk full, or the floor not free.
func TestLargeJobsDoNotRaceIntoTheLastBytes(t *testing.T) {
	dir := t.TempDir()
	const mib = 1 << 20
	const size, floor, job = 48 * mib, 8 * mib, 14 * mib
	smallDisk(t, dir, size/mib)
	look := func() fleet.Volume {
		v, err := probe.Disk(context.Background(), dir)
		if err != nil {
			t.Error(err)
		}
		return v
	}
	var l ledger
	var work sync.WaitGroup
	ran, refused := make([]int, 8), make([]int, 8)
	for i := range ran {
		work.Go(func() {
			for n := range 12 {
				if _, _, ok := l.take(fence(i), job, floor, look); !ok {
					refused[i]++
					continue
				}
				ran[i]++
				path := filepath.Join(dir, fmt.Sprint(i, "-", n))
				f, err := os.Create(path)
				for wrote := int64(0); err == nil && wrote < job-mib; wrote += mib { // what a file needs besides
					if _, err = f.Write(make([]byte, mib)); err == nil {
						l.put(fence(i), job-mib-wrote)
					}
					if v := look(); v.Known && v.Free < floor {
						t.Errorf("%d bytes are free, the floor is %d", v.Free, floor)
					}
				}
				if err = errors.Join(err, f.Close(), os.Remove(path)); err != nil {
					t.Errorf("a job that was promised its bytes: %v", err)
				}
				l.put(fence(i), 0)
			}
		})
	}
	work.Wait()
	sum := func(all []int) (n int) {
		for _, one := range all {
			n += one
		}
		return n
	}
	if sum(ran) == 0 || sum(refused) == 0 || l.total() != 0 {
		t.Errorf("%d ran, %d were refused, %d bytes are still promised", sum(ran), sum(refused), l.total())
	}
}

// Two jobs fit on the disk one after the other: the second is declined while what the
// first was promised is kept for it, also over a restart of the runner, and has its
// turn later.
func TestSecondLargeJobIsDeclined(t *testing.T) {
	h := newHub(t)
	dir := t.TempDir()
	smallDisk(t, dir, 2000)
	if err := os.WriteFile(OwnerFile(dir), []byte("allow_file: true\nmin_free_bytes: 1200MiB\ngit: {name: R, email: r@x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := h.newRunner(func(c *Config) { c.Dir = dir })
	bare, _ := repository(t)
	gate := filepath.Join(t.TempDir(), "gate")
	job := func(line string) fleet.JobID {
		return h.submit(fleet.Spec{Kind: fleet.KindExec, Harness: "exec", Repo: &fleet.Repo{URL: bare}, Argv: []string{"sh", "-c", line}})
	}
	first := job("while [ ! -e " + gate + " ]; do sleep 0.05; done; head -c 3000000 /dev/zero > big")
	f := h.assign(first, r.id)
	h.ends(first, fleet.Running)
	if n := r.ledger.total(); n <= 900<<20 || n > fleet.FootprintRoom {
		t.Errorf("%d bytes are kept for the job", n)
	}
	declined := func(id fleet.JobID) {
		t.Helper()
		g := h.assign(id, r.id)
		eventually(t, "the second job to be declined", func() bool { return h.attempt(id, g).State == fleet.AttemptDeclined }, func() any { return h.attempt(id, g) })
		x := h.job(id).Excluded
		if len(x) != 1 || x[0].Code != fleet.StorageTight || !strings.Contains(x[0].Detail, "promised to other jobs") || x[0].Until == nil {
			t.Errorf("excluded %+v", x)
		} else if pause := x[0].Until.Sub(h.job(id).UpdatedAt); pause < 50*time.Second || pause > time.Minute {
			t.Errorf("it may come back after %s", pause)
		}
	}
	declined(job("true"))
	r.end()
	r = h.restart(r.cfg)
	if n := r.ledger.total(); n <= 900<<20 || n > fleet.FootprintRoom {
		t.Errorf("%d bytes are kept for the job after a restart", n)
	}
	declined(job("true"))
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.ends(first, fleet.Succeeded)
	eventually(t, "nothing to be kept any more", func() bool { return r.ledger.total() == 0 })
	repo := fleet.Repo{URL: bare}
	if n := r.footprints.of(repo.CacheOf()); n < 3_000_000 || n > 20<<20 {
		t.Errorf("the repository is known to take %d bytes", n)
	}
	if a := h.attempt(first, f); a.State != fleet.AttemptFinished {
		t.Errorf("the first attempt is %s", a.State)
	}
	last := job("true")
	h.assign(last, r.id)
	h.ends(last, fleet.Succeeded)
}

// The work of automations has a floor of its own, the higher of the hub's and the
// owner's; what people ask for goes by the owner's bound alone.
func TestFloorsAreForAutomations(t *testing.T) {
	h := newHub(t)
	dir := t.TempDir()
	smallDisk(t, dir, 200)
	rules := func(text string) {
		t.Helper()
		if err := os.WriteFile(OwnerFile(dir), []byte("min_free_bytes: 1MiB\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rules("memory: {keep: 0, per_slot: 1}\nfloors: {start: 300MiB}\n")
	h.must(&state.Set{Name: fleet.SettingFloorSelect, Value: "10MiB"})
	h.must(&state.Set{Name: fleet.SettingFloorStart, Value: "20MiB"})
	r := h.newRunner(func(c *Config) { c.Dir = dir })
	eventually(t, "the hub to have told its limits", func() bool { _, ever := r.limits(); return ever })
	automated := fleet.Spec{Kind: fleet.KindExec, Harness: "exec", Argv: []string{"true"}, Origin: fleet.Origin{Kind: fleet.Automation, Name: "nightly"}}
	j := h.submit(automated)
	f := h.assign(j, r.id)
	eventually(t, "the automation's job to be declined", func() bool { return h.attempt(j, f).State == fleet.AttemptDeclined }, func() any { return h.attempt(j, f) })
	if x := h.job(j).Excluded; len(x) != 1 || x[0].Code != fleet.Storage || !strings.Contains(x[0].Detail, "floor for automations") || !strings.Contains(x[0].Detail, "300 MiB are to stay free") {
		t.Errorf("excluded %+v", x)
	}
	p, _ := h.run(r.id, "true")
	h.ends(p, fleet.Succeeded)
	rules("memory: {keep: 0, per_slot: 1}\nfloors: {start: 100MiB}\n")
	r.loadOwner()
	j = h.submit(automated)
	h.assign(j, r.id)
	h.ends(j, fleet.Succeeded)
}
