package process

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

const (
	// sweepLimit bounds a sweep; what then is still there waits in the kernel or belongs to another user.
	sweepLimit = 10 * time.Second
	// quickScan is the longest run of a job in which process ids surely don't wrap around.
	quickScan = 5 * time.Second
	// enoughLooks that saw nothing count as the end where the kernel gives no proof.
	enoughLooks = 4
	// chaseLimit bounds one chase of our own children.
	chaseLimit = 50 * time.Millisecond
	// freezeRounds bounds the attempts to stop processes that fork faster than they are found.
	freezeRounds = 40
)

// A sweeper ends every process of one job.
type sweeper struct {
	marker  string
	group   *cgroup // nil if there is none
	lineage *lineage
	reaper  *reaper      // of the supervisor; nil in a runner
	spare   map[int]bool // never ended: this process, and the supervisor while it runs the sweep
	killed  map[Identity]bool
}

func newSweeper(marker string, group *cgroup, l *lineage) *sweeper {
	return &sweeper{marker: marker, group: group, lineage: l, killed: map[Identity]bool{}, spare: map[int]bool{os.Getpid(): true}}
}

// find gives the job's live processes by cgroup, by descent and session, and by the marker in their environment.
func (s *sweeper) find() ([]Identity, error) {
	procs, err := processes()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	inGroup := map[int]bool{}
	for _, pid := range s.group.pids() {
		inGroup[pid] = true
	}
	var found []Identity
	ours := s.lineage.update(procs)
	for _, p := range procs {
		if s.spare[p.PID] {
			continue
		}
		_, descends := slices.BinarySearchFunc(ours, p.PID, func(id Identity, pid int) int { return id.PID - pid })
		if !descends && !inGroup[p.PID] {
			if marked, _ := hasMark(p.PID, s.marker); !marked {
				continue
			}
		}
		found = append(found, p.Identity)
	}
	return found, nil
}

// strangers says whether a process carries the marker though it doesn't descend from us: somebody else's daemon may
// have started it for the job. It is for the end of a job that ran for so long and is known to have left no descendant.
func (s *sweeper) strangers(ran time.Duration) bool {
	pids, ok := younger()
	if !ok || ran > quickScan {
		found, err := s.find()
		return err != nil || len(found) > 0
	}
	for _, pid := range pids {
		if marked, _ := hasMark(pid, s.marker); marked {
			return true
		}
	}
	return false
}

// sweep ends everything and returns when nothing is left, or after sweepLimit with an error. It counts in killed.
func (s *sweeper) sweep() error {
	deadline := time.Now().Add(sweepLimit)
	pause := time.Millisecond
	for unseen := 0; ; {
		s.chase()
		s.freeze()
		s.group.kill()
		found, err := s.find()
		if err != nil {
			return err
		}
		var refused error
		for _, id := range found {
			if err := s.end(id, syscall.SIGKILL); err != nil {
				refused = fmt.Errorf("end process %d: %w", id.PID, err)
			}
		}
		if unseen++; len(found) > 0 {
			unseen = 0
		}
		if s.finished(unseen) {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("processes of the job are still there after %v, %d of them seen", sweepLimit, len(found)), refused)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// finished says that nothing is left after so many looks in a row that saw nothing. One look proves little: it takes
// longer than a process that only starts its successor lives. Where orphans return to us the kernel gives the proof.
func (s *sweeper) finished(unseen int) bool {
	if s.reaper != nil && orphansReturn {
		return unseen > 0 && s.reaper.childless()
	}
	return unseen >= enoughLooks
}

// chase ends our own children for as long as new ones come: where orphans return to us every process of the job
// becomes one when its parent ends. No other look is quick enough for a process that starts its successor and ends.
func (s *sweeper) chase() {
	if s.reaper == nil || !orphansReturn {
		return
	}
	for deadline := time.Now().Add(chaseLimit); !s.reaper.childless() && time.Now().Before(deadline); {
		pids, ok := ownChildren()
		if !ok {
			return
		}
		for _, pid := range pids {
			if p, err := inspect(pid); err == nil {
				_ = s.end(p.Identity, syscall.SIGKILL)
			}
		}
	}
}

// end sends a signal that ends or stops a process and counts it. That it is gone already is no error.
func (s *sweeper) end(id Identity, sig syscall.Signal) error {
	err := signalExact(id, sig)
	if err == nil {
		s.killed[id] = true
	} else if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// freeze stops all processes of the job, so that the ones which are ended can't leave new ones behind. It gives
// up after some rounds: the caller repeats itself anyway.
func (s *sweeper) freeze() {
	stopped := map[Identity]bool{}
	for range freezeRounds {
		s.pounce(stopped)
		found, err := s.find()
		if err != nil {
			return
		}
		fresh := false
		for _, id := range found {
			if !stopped[id] {
				stopped[id], fresh = true, true
				_ = s.end(id, syscall.SIGSTOP)
			}
		}
		if !fresh {
			return
		}
	}
}

// pounce stops marked processes the moment it sees them, the youngest first, without waiting for the whole picture.
func (s *sweeper) pounce(stopped map[Identity]bool) {
	pids, err := processIDs()
	if err != nil {
		return
	}
	for _, pid := range slices.Backward(pids) {
		if s.spare[pid] {
			continue
		}
		if marked, _ := hasMark(pid, s.marker); !marked {
			continue
		}
		if p, err := inspect(pid); err == nil && !stopped[p.Identity] {
			stopped[p.Identity] = true
			_ = s.end(p.Identity, syscall.SIGSTOP)
		}
	}
}

// Sweep ends every process of a job whose supervisor is gone, found by cgroup, by marker, by descent and by what
// the supervisor saw last; a supervisor that still lives is ended too. It gives the number of processes ended. It
// tells nothing about the outcome: without an exit record that stays unknown.
func Sweep(dir string) (killed int, err error) {
	st, _ := recorded(dir)
	if st.Marker == "" {
		// Nothing was started yet, or the machine went down before the file reached the disk.
		return 0, nil
	}
	if st.Boot != "" && st.Boot != bootID() {
		return 0, nil
	}
	var tree treeDoc
	_ = readDoc(dir, treeFile, &tree)
	seen := append([]Identity{st.Child}, tree.Processes...)
	if proven(st, st.Supervisor) {
		// Its child dies with it; the rest is found below.
		if err := signalExact(st.Supervisor, syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return 0, fmt.Errorf("end supervisor %d: %w", st.Supervisor.PID, err)
		}
		killed++
	}
	path := st.Cgroup
	if path == "" {
		path = cgroupPath(st.Marker)
	}
	s := newSweeper(st.Marker, findCgroup(path), newLineage(Identity{}, seen...))
	err = s.sweep()
	killed += len(s.killed)
	if err == nil {
		err = removeCgroup(s.group)
	}
	alive(st.Supervisor) // reaps it if it was our child
	if err != nil {
		return killed, fmt.Errorf("sweep %s: %w", dir, err)
	}
	return killed, nil
}

// removeCgroup removes a cgroup that has just been emptied; the kernel may need a moment.
func removeCgroup(g *cgroup) error {
	deadline := time.Now().Add(time.Second)
	for {
		err := g.remove()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// treeDoc is tree.json.
type treeDoc struct {
	Processes []Identity `json:"processes"`
}
