package hub

import (
	"log/slog"
	"os"
	"testing"
)

// The room that is held for the log is given up on a full disk, counts as room that is
// kept, and is held again once there is enough.
func TestRoomIsHeldForTheLog(t *testing.T) {
	t.Parallel()
	free := int64(100 << 20)
	r := &reserve{dir: t.TempDir(), keep: 8 << 20, hold: 2 << 20, log: slog.New(slog.DiscardHandler), stat: func(string) (int64, error) { return free, nil }}
	file := func() int64 {
		st, err := os.Stat(r.ballast())
		if err != nil {
			return 0
		}
		return st.Size()
	}
	expect := func(when string, size int64, full bool) {
		t.Helper()
		r.at = r.at.Add(-2 * lookAgain)
		if err := r.room(); file() != size || r.held != size || (err != nil) != full {
			t.Errorf("%s: the file has %d bytes, %d are held, %v; want %d, full: %v", when, file(), r.held, err, size, full)
		}
	}
	r.settle()
	r.take()
	expect("with room", 2<<20, false)
	free = 7 << 20
	expect("what is held counts", 2<<20, false)
	free = 5 << 20
	expect("nearly full", 2<<20, true)
	free = 2 << 20
	if !r.makeRoom() || !r.makeRoom() {
		t.Error("no room was made")
	}
	expect("given up", 0, true)
	free = 9 << 20
	r.take()
	expect("with too little to hold any", 0, false)
	free = 10 << 20
	r.take()
	expect("with enough", 2<<20, false)

	// The next run finds it, and gives it up where there is nothing to start with.
	r = &reserve{dir: r.dir, keep: r.keep, hold: r.hold, log: r.log, stat: r.stat}
	r.settle()
	expect("found again", 2<<20, false)
	free = 1 << 19
	r.settle()
	expect("at a start without room", 0, true)
	free = 0
	if r.makeRoom() {
		t.Error("there is room on a disk without any")
	}
}
