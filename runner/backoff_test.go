package runner

import (
	"testing"
	"time"
)

func TestALineThatBreaksOftenDoesNotKeepWorkWaiting(t *testing.T) {
	var b backoff
	for range 12 {
		b.wait(maxBackoff)
	}
	if w := b.wait(maxBackoff); w < maxBackoff*8/10 {
		t.Errorf("after a dozen failures the wait is %s; want about %s", w, maxBackoff)
	}
	b.after(time.Second, true)
	if w := b.wait(maxBackoff); w > easeTo*12/10 {
		t.Errorf("after a session that was answered the wait is %s; want at most about %s", w, easeTo)
	}
	b.after(steadyAfter, false)
	if w := b.wait(maxBackoff); w > minBackoff*12/10 || w < minBackoff*8/10 {
		t.Errorf("after a reset the wait is %s; want about %s", w, minBackoff)
	}
	if w := b.wait(time.Millisecond); w > 2*time.Millisecond {
		t.Errorf("with a limit of 1 ms the wait is %s", w)
	}
}

// A session that breaks before the first answer shows all the same that the hub is
// there; a hub that greets and drops without end is not stormed for that.
func TestHandshakesAloneEaseTheLadderOnlySoFar(t *testing.T) {
	var b backoff
	for range 12 {
		b.wait(maxBackoff)
	}
	for range 20 {
		b.after(time.Second, false)
		if w := b.wait(maxBackoff); w > greetTo*12/10 || w < greetTo*8/10 {
			t.Errorf("after a session without an answer the wait is %s; want about %s", w, greetTo)
		}
	}
	// From the bottom the ladder is climbed as ever.
	b.reset()
	last := time.Duration(0)
	for range 5 {
		b.after(time.Second, false)
		w := b.wait(maxBackoff)
		if w < last {
			t.Errorf("a wait of %s after one of %s", w, last)
		}
		last = w
	}
	if last < 3*time.Second {
		t.Errorf("after five handshakes that led to nothing the wait is %s", last)
	}
}
