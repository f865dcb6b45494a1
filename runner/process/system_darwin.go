package process

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// treeInterval is the time between two pictures of a job's processes. Here no orphan returns to the supervisor,
// so it must be seen while its parent lives.
const treeInterval = 500 * time.Millisecond

// zombieState is SZOMB of sys/proc.h.
const zombieState = 5

func readBootID() string {
	if id, err := unix.Sysctl("kern.bootsessionuuid"); err == nil {
		return id
	}
	tv, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return ""
	}
	return strconv.FormatInt(tv.Sec, 10)
}

func row(k *unix.KinfoProc) proc {
	pid := int(k.Proc.P_pid)
	start := k.Proc.P_starttime
	session, _ := unix.Getsid(pid)
	return proc{
		Identity: Identity{PID: pid, StartTime: uint64(start.Sec)*1_000_000 + uint64(start.Usec)},
		parent:   int(k.Eproc.Ppid), session: session, zombie: k.Proc.P_stat == zombieState,
	}
}

// look reads one row of the process table; a dead process that was not reaped yet is reported as a zombie.
func look(pid int) (p proc, err error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		return proc{}, os.ErrProcessDone
	}
	return row(k), nil
}

// processes gives the process table without zombies.
func processes() ([]proc, error) {
	table, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	procs := make([]proc, 0, len(table))
	for i := range table {
		if p := row(&table[i]); !p.zombie && p.PID > 0 {
			procs = append(procs, p)
		}
	}
	return procs, nil
}

// processIDs gives the ids in the process table.
func processIDs() ([]int, error) {
	procs, err := processes()
	pids := make([]int, 0, len(procs))
	for _, p := range procs {
		pids = append(pids, p.PID)
	}
	return pids, err
}

// hasMark looks for the marker in the environment that a process was started with. The system hides that of
// protected binaries; such a process is found by descent alone.
func hasMark(pid int, marker string) (marked, readable bool) {
	env, ok := environment(pid)
	if !ok {
		return false, false
	}
	want := []byte(MarkVariable + "=" + marker)
	some := false
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(kv, want) {
			return true, true
		}
		some = some || len(kv) > 0
	}
	return false, some
}

// markOf gives the marker in the environment that a process was started with, "" if there is none or it can't be read.
func markOf(pid int) string {
	env, _ := environment(pid)
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if marker, ok := bytes.CutPrefix(kv, []byte(MarkVariable+"=")); ok {
			return string(marker)
		}
	}
	return ""
}

func environment(pid int) (env []byte, ok bool) {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(b) < 4 {
		return nil, false
	}
	// The layout is: number of arguments, path of the program, padding, the arguments, the environment.
	args := int(binary.LittleEndian.Uint32(b))
	b = b[4:]
	end := bytes.IndexByte(b, 0)
	if end < 0 {
		return nil, false
	}
	b = bytes.TrimLeft(b[end:], "\x00")
	for range args {
		end := bytes.IndexByte(b, 0)
		if end < 0 {
			return nil, false
		}
		b = b[end+1:]
	}
	return b, true
}

// Slept gives an upper bound of the time that the machine has slept since it was started: all of it.
func Slept() time.Duration {
	tv, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return 1 << 62
	}
	return max(0, time.Since(time.Unix(tv.Unix())))
}

func ownChildren() (pids []int, ok bool) { return nil, false }

func younger() (pids []int, ok bool) { return nil, false }

// signalExact sends a signal to that very process; between the look and the signal a few microseconds pass.
func signalExact(id Identity, sig syscall.Signal) error {
	if !alive(id) {
		return os.ErrProcessDone
	}
	return syscall.Kill(id.PID, sig)
}

func becomeReaper() error { return nil }

// orphansReturn: orphans become children of launchd.
const orphansReturn = false

func childAttr(*cgroup) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
