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
	// freezeRounds bounds the attempts to stop processes that fork faster than they are found.
	freezeRounds = 40
)

// A sweeper ends every process of one job.
type sweeper struct {
	marker  string
	group   *cgroup // nil if there is none
	lineage *lineage
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
	for {
		s.freeze()
		s.group.kill()
		found, err := s.find()
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return nil
		}
		var refused error
		for _, id := range found {
			if err := signalExact(id, syscall.SIGKILL); err == nil {
				s.killed[id] = true
			} else if !errors.Is(err, os.ErrProcessDone) {
				refused = fmt.Errorf("end process %d: %w", id.PID, err)
			}
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("%d processes of the job are still there after %v", len(found), sweepLimit), refused)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// freeze stops all processes of the job, so that the ones which are ended can't leave new ones behind. It gives
// up after some rounds: the caller repeats itself anyway.
func (s *sweeper) freeze() {
	stopped := map[Identity]bool{}
	for range freezeRounds {
		found, err := s.find()
		if err != nil {
			return
		}
		fresh := false
		for _, id := range found {
			if !stopped[id] {
				stopped[id], fresh = true, true
				if signalExact(id, syscall.SIGSTOP) == nil {
					s.killed[id] = true
				}
			}
		}
		if !fresh {
			return
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
