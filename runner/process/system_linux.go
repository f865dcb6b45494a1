package process

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// treeInterval is the time between two pictures of a job's processes where no cgroup holds them.
const treeInterval = time.Second

func readBootID() string {
	boot, _ := slurp("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return strings.TrimSpace(string(boot)) + " " + namespace
}

// look reads one row of the process table; a dead process that was not reaped yet is reported as a zombie.
func look(pid int) (p proc, err error) {
	b, err := slurp("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, os.ErrProcessDone
	}
	// The name in parentheses may itself hold spaces and parentheses.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return proc{}, os.ErrProcessDone
	}
	p.PID = pid
	// A process whose first thread has ended goes on with the others.
	p.zombie = (fields[0] == "Z" || fields[0] == "X") && (fields[17] == "1" || fields[17] == "0")
	p.parent, _ = strconv.Atoi(fields[1])
	p.session, _ = strconv.Atoi(fields[3])
	p.StartTime, err = strconv.ParseUint(fields[19], 10, 64)
	return p, err
}

// processes gives the process table without zombies.
func processes() ([]proc, error) {
	pids, err := processIDs()
	if err != nil {
		return nil, err
	}
	procs := make([]proc, 0, len(pids))
	for _, pid := range pids {
		if p, err := inspect(pid); err == nil {
			procs = append(procs, p)
		}
	}
	return procs, nil
}

// processIDs gives the ids in the process table, in rising order.
func processIDs() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// hasMark looks for the marker in the environment that a process was started with.
func hasMark(pid int, marker string) (marked, readable bool) {
	env, err := slurp("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false, false
	}
	return envHasMark(env, marker), true
}

// markOf gives the marker in the environment that a process was started with, "" if there is none or it can't be read.
func markOf(pid int) string {
	env, err := slurp("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if marker, ok := bytes.CutPrefix(kv, []byte(MarkVariable+"=")); ok {
			return string(marker)
		}
	}
	return ""
}

// Slept gives the time that the machine has slept since it was started.
func Slept() time.Duration {
	var all, awake unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &all) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil {
		return 0
	}
	return max(0, time.Duration(all.Nano()-awake.Nano()))
}

func envHasMark(env []byte, marker string) bool {
	want := []byte(MarkVariable + "=" + marker)
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(kv, want) {
			return true
		}
	}
	return false
}

// younger gives the ids of all processes started after this one, if that is cheap to know: few were started since,
// and the ids have not wrapped around. Those without the rights to see them are included.
func younger() (pids []int, ok bool) {
	b, err := slurp("/proc/loadavg")
	if err != nil {
		return nil, false
	}
	fields := strings.Fields(string(b))
	self := os.Getpid()
	last, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil || last < self || last > self+500 {
		return nil, false
	}
	for pid := self + 1; pid <= last; pid++ {
		// Threads have ids of the same series; of them most are, where many jobs start at once.
		if unix.Tgkill(pid, pid, 0) != unix.ESRCH {
			pids = append(pids, pid)
		}
	}
	return pids, true
}

// ownChildren gives the ids of our children, which the kernel keeps for each thread. It is far quicker than a look
// at the whole process table. ok is false where the kernel does not tell.
func ownChildren() (pids []int, ok bool) {
	dir, err := os.Open("/proc/self/task")
	if err != nil {
		return nil, false
	}
	threads, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	for _, thread := range threads {
		b, err := slurp("/proc/self/task/" + thread + "/children")
		if err != nil {
			continue
		}
		ok = true
		for _, field := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, ok
}

// signalExact sends a signal to that very process, or to nobody.
func signalExact(id Identity, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		if !alive(id) {
			return os.ErrProcessDone
		}
		return syscall.Kill(id.PID, sig)
	}
	if err != nil {
		return os.ErrProcessDone
	}
	defer unix.Close(fd)
	// The descriptor holds the process; if it is the right one now, the signal can't reach another one.
	if p, err := inspect(id.PID); err != nil || p.Identity != id {
		return os.ErrProcessDone
	}
	return unix.PidfdSendSignal(fd, unix.Signal(sig), nil, 0)
}

// becomeReaper makes orphans of the job children of this process, so that none gets away unseen.
func becomeReaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// orphansReturn says that a process without children has no descendants: wherever a parent dies, its children
// become ours.
const orphansReturn = true

// childAttr puts the child in a session of its own and in its cgroup, and ends it when this process dies. The
// latter follows the thread that starts it, which must live on.
func childAttr(g *cgroup) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if g != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, g.fd
	}
	return attr
}
