package hub

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// hook is a webhook in made-up time, and the record of alerts beside it.
type hook struct {
	*courier
	answer func(id string, n int) (int, error) // to the n-th post of an alert, from 1

	mu      sync.Mutex
	address string
	alerts  []*fleet.Alert
	posts   map[string][]time.Time
	ended   map[string]string
	bodies  map[string]fleet.Alert
}

func (h *hook) RoundTrip(req *http.Request) (*http.Response, error) {
	id := req.Header.Get("Tugline-Alert")
	b, _ := io.ReadAll(req.Body)
	h.mu.Lock()
	h.posts[id] = append(h.posts[id], time.Now())
	n := len(h.posts[id])
	var a fleet.Alert
	_ = json.Unmarshal(b, &a)
	h.bodies[id] = a
	h.mu.Unlock()
	code, err := h.answer(id, n)
	if code == 0 && err == nil {
		<-req.Context().Done() // it hangs
		return nil, req.Context().Err()
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
}

func (h *hook) raise(id string) {
	h.mu.Lock()
	h.alerts = append(h.alerts, &fleet.Alert{ID: id, At: time.Now(), Kind: "low_disk", Text: "box: low"})
	h.mu.Unlock()
	poke(h.pokes)
}

// glimpse is what a hook has seen and what became of it, at one moment.
type glimpse struct {
	posts  map[string][]time.Time
	ended  map[string]string
	bodies map[string]fleet.Alert
	tries  int // in mind
}

func (h *hook) glance() glimpse {
	h.courier.mu.Lock()
	tries := len(h.tries)
	h.courier.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	return glimpse{maps.Clone(h.posts), maps.Clone(h.ended), maps.Clone(h.bodies), tries}
}

func (h *hook) moves(to string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.address = to
}

// withHook runs a courier in a bubble for the time of f.
func withHook(t *testing.T, answer func(string, int) (int, error), f func(*hook)) {
	synctest.Test(t, func(t *testing.T) {
		h := &hook{courier: newCourier(slog.New(slog.DiscardHandler)), answer: answer,
			posts: map[string][]time.Time{}, ended: map[string]string{}, bodies: map[string]fleet.Alert{}}
		h.client.Transport = h
		h.address = "https://hooks.example/secret"
		h.to, h.now = func() string { h.mu.Lock(); defer h.mu.Unlock(); return h.address }, time.Now
		h.owed = func() (out []*fleet.Alert) {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, a := range h.alerts {
				if _, over := h.ended[a.ID]; !over {
					out = append(out, a)
				}
			}
			return out
		}
		h.settle = func(_ context.Context, id, failed string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.ended[id] = failed
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); h.run(ctx) }()
		f(h)
		cancel()
		<-done
	})
}

// pass lets so much of made-up time go by, and what comes of it be done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAlertIsDelivered(t *testing.T) {
	withHook(t, func(string, int) (int, error) { return 204, nil }, func(h *hook) {
		h.raise("1-2-1")
		synctest.Wait()
		failed, over := h.glance().ended["1-2-1"]
		if !over || failed != "" || len(h.glance().posts["1-2-1"]) != 1 {
			t.Errorf("ended: %t, %q, after %d posts; want delivered by one", over, failed, len(h.glance().posts["1-2-1"]))
		}
		if b := h.glance().bodies["1-2-1"]; b.ID != "1-2-1" || b.Kind != "low_disk" || b.Text == "" {
			t.Errorf("posted %+v", b)
		}
		pass(2 * time.Hour)
		if n := len(h.glance().posts["1-2-1"]); n != 1 {
			t.Errorf("%d posts of one alert that was delivered", n)
		}
	})
}

// TestAlertIsTriedAgain: ever more seldom, until it is taken, or an hour has passed.
func TestAlertIsTriedAgain(t *testing.T) {
	answer := func(id string, n int) (int, error) {
		switch {
		case id == "late" && n == 4:
			return 200, nil
		case id == "hangs":
			return 0, nil
		case n%2 == 0:
			return 0, errors.New("connection refused")
		}
		return 503, nil
	}
	withHook(t, answer, func(h *hook) {
		start := time.Now()
		h.raise("late")
		h.raise("never")
		h.raise("hangs")
		pass(36 * time.Second)
		if failed, over := h.glance().ended["late"]; !over || failed != "" {
			t.Errorf("the fourth post was taken: ended %t, %q", over, failed)
		}
		var gaps []string
		for i, at := range h.glance().posts["late"] {
			if i > 0 {
				gaps = append(gaps, at.Sub(h.glance().posts["late"][i-1]).String())
			}
		}
		if got := strings.Join(gaps, " "); got != "5s 10s 20s" {
			t.Errorf("tried again after %s; want 5s 10s 20s", got)
		}
		pass(58 * time.Minute)
		if _, over := h.glance().ended["never"]; over {
			t.Errorf("given up after %s", time.Since(start))
		}
		pass(15 * time.Minute)
		for id, why := range map[string]string{"never": "503", "hangs": "deadline"} {
			failed, over := h.glance().ended[id]
			if !over || !strings.Contains(failed, "not delivered within 60 min") {
				t.Errorf("%s: ended %t, %q; want given up after an hour", id, over, failed)
			}
			if strings.Contains(failed, "secret") || !strings.Contains(failed, why) && !strings.Contains(failed, "refused") {
				t.Errorf("%s: given up because %q", id, failed)
			}
			if n := len(h.glance().posts[id]); n < 8 || n > 16 {
				t.Errorf("%s: %d posts in an hour", id, n)
			}
		}
		n := len(h.glance().posts["never"])
		pass(2 * time.Hour)
		if len(h.glance().posts["never"]) != n || h.glance().tries != 0 {
			t.Errorf("%d more posts of what was given up; %d alerts still in mind", len(h.glance().posts["never"])-n, h.glance().tries)
		}
	})
}

// TestManyAlertsAtAHookThatHangs: few are under way at a time, few are kept in mind, and
// all are given up in time.
func TestManyAlertsAtAHookThatHangs(t *testing.T) {
	var mu sync.Mutex
	flying, most := 0, 0
	var h *hook
	answer := func(string, int) (int, error) {
		mu.Lock()
		flying++
		most = max(most, flying)
		mu.Unlock()
		time.Sleep(alertTime)
		mu.Lock()
		flying--
		mu.Unlock()
		return 0, context.DeadlineExceeded
	}
	withHook(t, answer, func(it *hook) {
		h = it
		for i := range fleet.MaxAlerts {
			h.raise(strconv.Itoa(i))
		}
		pass(30 * time.Minute)
		if n := h.glance().tries; n > alertsInMind {
			t.Errorf("%d alerts are kept in mind", n)
		}
		pass(45 * time.Minute)
		if len(h.glance().ended) != fleet.MaxAlerts {
			t.Errorf("%d of %d alerts have ended", len(h.glance().ended), fleet.MaxAlerts)
		}
	})
	if most > alertsAtOnce {
		t.Errorf("%d posts under way at a time; at most %d", most, alertsAtOnce)
	}
}

func TestNoWebhookIsNoDelivery(t *testing.T) {
	withHook(t, func(string, int) (int, error) { return 200, nil }, func(h *hook) {
		h.moves("")
		h.raise("a")
		pass(90 * time.Minute)
		h.raise("b")
		pass(45 * time.Minute)
		h.raise("c")
		if len(h.glance().posts)+len(h.glance().ended) != 0 {
			t.Errorf("posts %v, ended %v without a webhook", h.glance().posts, h.glance().ended)
		}
		// One that is there later is told of the last hour alone.
		h.moves("https://hooks.example/late")
		pass(2 * time.Minute)
		if len(h.glance().posts) != 2 || len(h.glance().ended) != 2 || len(h.glance().posts["a"]) != 0 {
			t.Errorf("posts %v, ended %v of what was raised before there was a webhook", h.glance().posts, h.glance().ended)
		}
	})
}

// TestWebhookFollowsNoOddRedirect: only one that leaves a post a post, within the scheme.
func TestWebhookFollowsNoOddRedirect(t *testing.T) {
	var got []string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /taken", func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header.Get("Tugline-Alert")) })
	mux.HandleFunc("GET /taken", func(http.ResponseWriter, *http.Request) { t.Error("the post became a get") })
	mux.HandleFunc("POST /moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/taken", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("POST /found", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/taken", http.StatusFound) })
	mux.HandleFunc("POST /loop", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	mux.HandleFunc("POST /other", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(srv.URL, "http", "https", 1)+"/taken", http.StatusTemporaryRedirect)
	})
	c := newCourier(slog.New(slog.DiscardHandler))
	defer c.client.CloseIdleConnections()
	for path, want := range map[string]string{"/taken": "", "/moved": "", "/found": "302", "/loop": "307", "/other": "307", "/none": "404"} {
		err := c.post(t.Context(), srv.URL+path, &fleet.Alert{ID: path})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", path, err, want)
		}
	}
	if len(got) != 2 {
		t.Errorf("taken: %v; want two", got)
	}
	for _, bad := range []string{"ftp://x/y", "hooks.example", "https://?", "http://%zz", "file:///etc/passwd"} {
		if err := c.post(t.Context(), bad, &fleet.Alert{ID: "x"}); err == nil || strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v; want an error that does not hold it", bad, err)
		}
	}
	if err := c.post(t.Context(), "http://127.0.0.1:1/secret", &fleet.Alert{ID: "x"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("an address where nobody listens: %v", err)
	}
}
