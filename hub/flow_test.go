package hub

import (
	"testing"
	"time"
)

// A clock that is set back by an hour does not make time stand still, and time goes at
// the clock's speed again once that has caught up.
func TestTimeFlowsWhileTheClockIsBehind(t *testing.T) {
	begin := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	var f flow
	stateTime, last := begin, begin
	for passed := time.Duration(0); passed < 4*time.Hour; passed += time.Second {
		wall := begin.Add(passed)
		if passed >= 10*time.Second {
			wall = wall.Add(-time.Hour)
		}
		now := f.to(stateTime, wall, begin.Add(passed))
		if now.Before(last) {
			t.Fatalf("after %s it is %s, before it was %s", passed, now, last)
		}
		if went := now.Sub(last); passed > 0 && (went < time.Second/2 || went > time.Second) {
			t.Fatalf("after %s a second took time on by %s", passed, went)
		}
		if passed > 2*time.Hour+time.Minute && !now.Equal(wall) {
			t.Fatalf("after %s it is %s, and the clock says %s", passed, now, wall)
		}
		if last = now; passed%(30*time.Second) == 0 { // an entry
			stateTime = now
		}
	}
}

// A log that was set back to an earlier state takes time with it.
func TestTimeFollowsARestoredLog(t *testing.T) {
	begin := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	var f flow
	f.to(begin, begin, begin)
	back := begin.AddDate(0, 0, -3)
	if got := f.to(back, back, begin.Add(time.Minute)); !got.Equal(back) {
		t.Errorf("it is %s after the log was set back to %s", got, back)
	}
}
