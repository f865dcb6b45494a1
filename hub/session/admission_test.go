package session

import (
	"net/http"
	"sort"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// rush has n runners come at one instant; each that is refused comes back when it was
// told to. It gives when each began its handshake.
func rush(n int) []time.Duration {
	var a admission
	start := time.Now()
	began := make(chan time.Duration, n)
	for range n {
		go func() {
			for {
				wait, ok := a.reserve(time.Now())
				if !ok {
					wait = time.Duration(seconds(wait)) * time.Second
				}
				time.Sleep(wait)
				if ok {
					began <- time.Since(start)
					return
				}
			}
		}()
	}
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = <-began
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	return out
}

func TestFiveHundredRunnersAreBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if all := rush(500); all[499] > 600*time.Millisecond {
			t.Errorf("the last of 500 runners begins its handshake after %s", all[499])
		}
	})
}

func TestNoMoreThanAThousandHandshakesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		all := rush(n)
		for i := 1001; i < n; i++ {
			if d := all[i] - all[i-1001]; d < time.Second {
				t.Fatalf("handshakes %d to %d began within %s", i-1001, i, d)
			}
		}
		if last := all[n-1]; last > 40*time.Second {
			t.Errorf("the last of %d runners begins after %s", n, last)
		}
	})
}

func TestRunnersAreToldWhenToComeBack(t *testing.T) {
	h := newHub(t)
	a := h.enrolled()
	h.mu.Lock()
	h.leading = false
	h.mu.Unlock()
	told := func() int {
		t.Helper()
		status, header, _ := a.ask("", "open", nil)
		s, err := strconv.Atoi(header.Get("Retry-After"))
		if status != http.StatusServiceUnavailable || err != nil {
			t.Fatalf("a hub that does not lead answered %d, %v", status, header)
		}
		return s
	}
	if s := told(); s != 1 {
		t.Errorf("one runner is told to come back after %d s; want 1", s)
	}
	for i := range 2000 {
		h.must(&state.CreateTicket{Hash: wire.SecretHash(strconv.Itoa(i)), TTL: time.Hour, Uses: 1})
		h.must(&state.Enrol{Ticket: wire.SecretHash(strconv.Itoa(i)), ID: fleet.RunnerID("r-" + strconv.Itoa(i)), Name: "n" + strconv.Itoa(i),
			SignKey: random(t, 32), BoxKey: random(t, 32), MachineID: "m" + strconv.Itoa(i)})
	}
	h.srv.admission.mu.Lock()
	h.srv.admission.countedAt = time.Time{}
	h.srv.admission.mu.Unlock()
	if s := told(); s != 5 {
		t.Errorf("of 2,001 runners one is told to come back after %d s; want 5", s)
	}

	// One that leads and has its hands full says so too.
	h.mu.Lock()
	h.leading = true
	h.mu.Unlock()
	h.srv.admission.mu.Lock()
	h.srv.admission.next = time.Now().Add(7500 * time.Millisecond)
	h.srv.admission.mu.Unlock()
	if s := told(); s != 8 {
		t.Errorf("with 7.5 s of handshakes ahead it says %d s; want 8", s)
	}
}
