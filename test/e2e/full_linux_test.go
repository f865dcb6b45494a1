package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// smallDisk puts the runner's data on a file system of so many MiB.
func smallDisk(m *mesh.Mesh, mib int) string {
	m.T.Helper()
	dir := filepath.Join(m.Dir, "runner")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		m.T.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", mib)); err != nil {
		m.T.Fatalf("mount a small file system, which this test needs root for: %v", err)
	}
	m.T.Cleanup(func() {
		m.Runner.Stop()
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			m.T.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// fill takes every byte that is left, and gives the file that holds them.
func fill(m *mesh.Mesh, dir string) string {
	m.T.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		m.T.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 16 {
		for b := make([]byte, size); ; {
			if _, err := f.Write(b); err != nil {
				break
			}
		}
	}
	return path
}

func declines(m *mesh.Mesh) bool {
	out, _, _ := m.Try("runner", "get", "r1", "--json")
	return strings.Contains(out, "storage: ")
}

// The disk is filled under a running job, by somebody else. The runner stays up and
// takes nothing new; it is started again on the full disk; once there is room the job
// has its right end, and what was recorded of its output is what it wrote.
func TestDiskThatFillsUp(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	m.Config = "min_free_bytes: 1MiB\n"
	dir := smallDisk(m, 30)
	m.StartHub()
	m.StartRunner()
	m.Online()
	gate := filepath.Join(m.Dir, "gate")
	script := m.Write(filepath.Join(m.Dir, "lines.sh"), `echo started
while [ ! -e "$1" ]; do sleep 0.05; done
i=0; while [ $i -lt 2000 ]; do echo "line $i of what is written on a full disk"; i=$((i+1)); done
exit 5
`)
	id := started(m, "sh", script, gate)
	filler := fill(m, dir)
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	m.Eventually(40*time.Second, "the runner declines for the sake of its disk", func() bool { return declines(m) })
	waiting := m.Detach("exec", "--", "echo", "later")
	m.Runner.Kill()
	m.StartRunner()
	m.Online()
	m.Eventually(40*time.Second, "the runner declines after a start on the full disk", func() bool { return declines(m) })
	if j := m.Job(waiting); j.State != fleet.Queued {
		t.Errorf("the next job is %s; want it queued", j.State)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	j := m.Ended(id, 60*time.Second)
	if j.State != fleet.Failed || j.ExitCode == nil || *j.ExitCode != 5 {
		t.Errorf("job is %s, exit code %v (%s); want exit code 5", j.State, j.ExitCode, j.Reason.Detail)
	}
	m.Eventually(30*time.Second, "the log is sealed", func() bool { return m.Job(id).Log.Sealed })
	var want strings.Builder
	want.WriteString("started\n")
	for i := range 2000 {
		fmt.Fprintf(&want, "line %d of what is written on a full disk\n", i)
	}
	out, _, _ := m.Try("job", "logs", id)
	if rest := without(out, want.String()); rest != "" {
		t.Errorf("the log has what the command never wrote: %.200q", rest)
	}
	if j := m.Ended(waiting, 60*time.Second); j.State != fleet.Succeeded {
		t.Errorf("the next job is %s (%s); want succeeded", j.State, j.Reason.Detail)
	}
}

// without takes away the pieces of a log that were recorded, in order; what is left
// was never written. Marks of a gap are no output.
func without(log, wrote string) string {
	for _, line := range strings.SplitAfter(log, "\n") {
		i := strings.Index(wrote, strings.TrimSuffix(line, "\n"))
		if i < 0 {
			return line
		}
		wrote = wrote[i+len(strings.TrimSuffix(line, "\n")):]
	}
	return ""
}

// A job fills the disk itself, with artifacts; once its file is gone it ends as it
// should, and a cancel gets through while it is full.
func TestJobThatFillsTheDisk(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	m.Config = "min_free_bytes: 1MiB\n"
	dir := smallDisk(m, 30)
	m.StartHub()
	m.StartRunner()
	m.Online()
	id := m.Detach("exec", "--", "sh", "-c", `echo started; cat /dev/zero > big; sleep 306`)
	m.Eventually(40*time.Second, "the runner declines", func() bool { return declines(m) })
	m.Run("job", "cancel", id)
	m.Eventually(40*time.Second, "the command is gone", func() bool { return !sleeps(m, "sleep 306") })
	big, err := filepath.Glob(filepath.Join(dir, "scratch", id, "work", "big"))
	if err != nil || len(big) != 1 {
		t.Fatalf("the job's file: %v, %v", big, err)
	}
	if b, _ := os.ReadFile(big[0]); bytes.ContainsFunc(b, func(r rune) bool { return r != 0 }) {
		t.Error("the job's file is not what it wrote")
	}
	if err := os.Remove(big[0]); err != nil {
		t.Fatal(err)
	}
	if j := m.Ended(id, 60*time.Second); j.State != fleet.Cancelled {
		t.Errorf("job is %s (%s); want cancelled", j.State, j.Reason.Detail)
	}
	m.Eventually(60*time.Second, "the runner works again", func() bool {
		_, _, code := m.Try("exec", "--", "true")
		return code == 0
	})
}

// A real disk runs low. Automation waits and says with figures what is missing, a
// person's job goes on, the runner stays online, and people are told what fills the disk.
// Between the two floors an automation is placed and then given back before its checkout.
func TestPressureOfAFullDisk(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	m.Config = "min_free_bytes: 1MiB\n"
	dir := smallDisk(m, 60)
	m.StartHub()
	m.Run("hub", "set", "floor_select", "20MiB")
	m.Run("hub", "set", "floor_start", "30MiB")
	m.StartRunner()
	m.Online()
	if j := m.Ended(m.Detach("exec", "--automation", "nightly", "--", "true"), time.Minute); j.State != fleet.Succeeded {
		t.Fatalf("with room enough automation is %s (%s)", j.State, j.Reason.Detail)
	}
	filler := filepath.Join(dir, "trees", "filler")
	size := func(free int) {
		t.Helper()
		var st syscall.Statfs_t
		if err := syscall.Statfs(dir, &st); err != nil {
			t.Fatal(err)
		}
		was, _ := os.Stat(filler)
		have := int64(st.Bavail) * st.Bsize
		if was != nil {
			have += was.Size()
		}
		os.MkdirAll(filepath.Dir(filler), 0o700)
		if err := os.WriteFile(filler, make([]byte, have-int64(free)<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	size(10) // below the floor of placement
	m.Eventually(90*time.Second, "people are told of the disk", func() bool {
		out, _, _ := m.Try("alerts", "--json")
		return strings.Contains(out, `"storage_pressure"`) && strings.Contains(out, `"low_disk"`)
	})
	waits := m.Detach("exec", "--automation", "nightly", "--", "true")
	waitsFor(m, waits, fleet.Storage, "10 MiB", "20 MiB")
	if out := m.Run("alerts", "--json"); !strings.Contains(out, `"worktrees"`) {
		t.Errorf("the alert does not tell which class of files fills the disk:\n%s", out)
	}
	if j := m.Ended(m.Detach("exec", "--", "true"), time.Minute); j.State != fleet.Succeeded {
		t.Errorf("a person's job is %s", j.State)
	}
	if out := m.Run("runner", "get", "r1", "--json"); !strings.Contains(out, `"state":"online"`) && !strings.Contains(out, `"state": "online"`) {
		t.Errorf("under pressure the runner is not online:\n%s", out)
	}

	size(25) // between the floors
	m.Eventually(90*time.Second, "the job is given back before its checkout", func() bool {
		for _, a := range m.Job(waits).Attempts {
			if a.Code == fleet.Storage {
				return true
			}
		}
		return false
	})
	if j := m.Job(waits); j.State == fleet.Blocked || j.Budget.Used != 0 {
		t.Errorf("given back, the job is %s and has used %+v of its budget; it costs nothing", j.State, j.Budget)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	m.Eventually(90*time.Second, "people are told that the disk is well again", func() bool {
		out, _, _ := m.Try("alerts", "--json")
		return strings.Contains(out, `"recovered"`)
	})
	// The machine is left alone for a while after a fault, unless somebody says that it is mended.
	if r := waitsFor(m, waits, fleet.CircuitRefuses); r.Until == nil {
		t.Errorf("no end of the circuit is told: %+v", r)
	}
	for _, line := range strings.Split(strings.TrimSpace(m.Run("circuit", "list")), "\n")[1:] {
		m.Run("circuit", "reset", strings.Fields(line)[0], "--repaired", "the disk was cleared")
	}
	if j := m.Ended(waits, time.Minute); j.State != fleet.Succeeded {
		t.Errorf("with the disk cleared the job is %s (%s)", j.State, j.Reason.Detail)
	}
}
