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
	b.ease()
	if w := b.wait(maxBackoff); w > easeTo*12/10 {
		t.Errorf("after a session that was answered the wait is %s; want at most about %s", w, easeTo)
	}
	b.reset()
	if w := b.wait(maxBackoff); w > minBackoff*12/10 || w < minBackoff*8/10 {
		t.Errorf("after a reset the wait is %s; want about %s", w, minBackoff)
	}
	if w := b.wait(time.Millisecond); w > 2*time.Millisecond {
		t.Errorf("with a limit of 1 ms the wait is %s", w)
	}
}
