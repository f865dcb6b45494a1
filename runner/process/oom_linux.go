package process

import (
	"os"
	"strconv"
	"strings"
)

// jobOOM is how much more than a runner that has 0 a job's processes are the kernel's
// choice where memory is short. A user's service manager may have given the runner more,
// and that of the machine gives a daemon -500.
const jobOOM, mostOOM = 100, 1000

const oomFile = "/proc/self/oom_score_adj"

// jobsGoFirst has processes that are started from now on be ended before others where
// memory is short, until undo.
func jobsGoFirst() (undo func() error) {
	was, err := os.ReadFile(oomFile)
	if err != nil {
		return func() error { return err }
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(was)))
	if err != nil {
		return func() error { return err }
	}
	if err := os.WriteFile(oomFile, []byte(strconv.Itoa(min(max(n, 0)+jobOOM, mostOOM))), 0); err != nil {
		return func() error { return err }
	}
	// A process may always go back to the value that it was given.
	return func() error { return os.WriteFile(oomFile, was, 0) }
}
