package process

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A cgroup holds every process of a job, whatever session, parent or environment it gives itself.
type cgroup struct {
	path string
	fd   int // the open directory, for starting a process in it; -1 if not open
}

// cgroupPath gives the path of a job's cgroup below our own one, or "" if there is no cgroup2 file system.
func cgroupPath(marker string) string {
	own, err := slurp("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	mounts, err := slurp("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	base := ownCgroup(string(mounts), string(own))
	if base == "" {
		return ""
	}
	return filepath.Join(base, "tugline-"+marker)
}

// ownCgroup finds the directory of our own cgroup from /proc/self/mountinfo and /proc/self/cgroup. Hosts that
// still use version 1 mount version 2 beside it, so the place is not fixed.
func ownCgroup(mountinfo, own string) string {
	var in string
	for line := range strings.Lines(own) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			in = path
		}
	}
	// A path that climbs is outside of what this namespace may see.
	if in == "" || strings.HasPrefix(in, "/..") {
		return ""
	}
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(left), strings.Fields(right)
		if !ok || len(fields) < 5 || len(kind) < 1 || kind[0] != "cgroup2" {
			continue
		}
		root, point := unescape(fields[3]), unescape(fields[4])
		if rel, err := filepath.Rel(root, in); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return filepath.Join(point, rel)
		}
	}
	return ""
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// makeCgroup makes and opens a cgroup. It fails where the user may not, which is usual outside of a service that
// was given its own subtree.
func makeCgroup(path string) (*cgroup, error) {
	if path == "" {
		return nil, errors.ErrUnsupported
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	fd, err := syscall.Open(path, syscall.O_DIRECTORY|syscall.O_CLOEXEC|syscall.O_RDONLY, 0)
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	return &cgroup{path: path, fd: fd}, nil
}

// findCgroup gives the cgroup that another process made, or nil.
func findCgroup(path string) *cgroup {
	if path == "" || !strings.HasPrefix(filepath.Base(path), "tugline-") {
		return nil
	}
	if _, err := os.Stat(filepath.Join(path, "cgroup.procs")); err != nil {
		return nil
	}
	return &cgroup{path: path, fd: -1}
}

// groupMarkers gives the markers of all cgroups of jobs beside which ours would be.
func groupMarkers() []string {
	base := cgroupPath("")
	if base == "" {
		return nil
	}
	entries, err := os.ReadDir(filepath.Dir(base))
	if err != nil {
		return nil
	}
	var markers []string
	for _, e := range entries {
		if marker, ok := strings.CutPrefix(e.Name(), filepath.Base(base)); ok && e.IsDir() {
			markers = append(markers, marker)
		}
	}
	return markers
}

// dirs gives the cgroup and all below it, the deepest first.
func (g *cgroup) dirs() []string {
	var dirs []string
	_ = filepath.WalkDir(g.path, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append([]string{path}, dirs...)
		}
		return nil
	})
	return dirs
}

// pids gives the processes in the cgroup and below; some may be dead already.
func (g *cgroup) pids() []int {
	if g == nil {
		return nil
	}
	var pids []int
	for _, dir := range g.dirs() {
		f, err := os.Open(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			if pid, err := strconv.Atoi(sc.Text()); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		f.Close()
	}
	return pids
}

// kill ends all processes in the cgroup in one step, forks included. Kernels before 5.14 can't; there the
// processes are ended one by one.
func (g *cgroup) kill() {
	if g != nil {
		_ = os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0)
	}
}

// remove removes the cgroup and those below it. Success proves that no process is left in it.
func (g *cgroup) remove() error {
	if g == nil {
		return nil
	}
	if g.fd >= 0 {
		_ = syscall.Close(g.fd)
		g.fd = -1
	}
	if err := syscall.Rmdir(g.path); err == nil || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	var last error
	for _, dir := range g.dirs() {
		last = syscall.Rmdir(dir)
	}
	return last
}

// OwnCgroup gives the directory of the cgroup that this process is in; "" if there is no cgroup2 file system.
func OwnCgroup() string {
	base := cgroupPath("")
	if base == "" {
		return ""
	}
	return filepath.Dir(base)
}
