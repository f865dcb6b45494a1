package hub

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Alerts go to the webhook by way of the leader, each at least once: what was delivered
// is recorded afterwards, and a leader that is cut off in between leaves it to the next
// one to post it again, under the same id.
const (
	alertHeader   = "Tugline-Alert" // names the alert: the same one may come twice
	alertTime     = 10 * time.Second
	alertFirst    = 5 * time.Second // before a post is tried again; doubled each time
	alertLongest  = 10 * time.Minute
	alertFor      = time.Hour // since it was raised; then it is given up
	alertsInMind  = 256       // at most; the record has the others
	alertsAtOnce  = 4
	maxAlertReply = 4 << 10 // bytes that are read of an answer
	maxRedirects  = 3
)

// courier posts alerts. It takes them from the record at each look, and keeps in mind
// only when to try each again.
type courier struct {
	owed   func() []*fleet.Alert // that are neither delivered nor given up, oldest first
	to     func() string         // the webhook; empty: there is none
	now    func() time.Time      // by which alerts are dated
	settle func(ctx context.Context, id, failed string)
	client *http.Client
	log    *slog.Logger
	pokes  chan struct{} // one may be owed now

	mu    sync.Mutex
	tries map[string]*try
}

// try is where the delivery of one alert stands.
type try struct {
	n      int
	next   time.Time // by the monotonic clock
	flying bool
	why    string
}

// newCourier makes one that has the web's client.
func newCourier(log *slog.Logger) *courier {
	return &courier{client: alertClient(), log: log, pokes: make(chan struct{}, 1), tries: map[string]*try{}}
}

// alertClient posts, and follows only what leaves a post a post, to the same scheme.
func alertClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout, t.MaxIdleConnsPerHost, t.MaxConnsPerHost = alertTime/2, alertTime, 1, alertsAtOnce
	return &http.Client{
		Transport: t, Timeout: alertTime,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects || req.Method != http.MethodPost || req.URL.Scheme != via[0].URL.Scheme {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

// run delivers until ctx ends, and waits for what is under way.
func (c *courier) run(ctx context.Context) {
	defer c.client.CloseIdleConnections()
	var under sync.WaitGroup
	defer under.Wait()
	for {
		wait := c.look(ctx, &under)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c.pokes:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// look begins what is due, and says after what time to look again unless poked.
func (c *courier) look(ctx context.Context, under *sync.WaitGroup) time.Duration {
	to := c.to()
	if to == "" {
		return time.Minute
	}
	// What is older than this nobody gave up in time: most likely there was no webhook yet.
	owed := slices.DeleteFunc(c.owed(), func(a *fleet.Alert) bool { return c.now().Sub(a.At) > 2*alertFor })
	if len(owed) > alertsInMind {
		owed = owed[:alertsInMind]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	flying := c.forget(owed)
	now, wait := time.Now(), time.Minute
	for _, a := range owed {
		t := c.tries[a.ID]
		if t == nil {
			t = &try{next: now}
			c.tries[a.ID] = t
		}
		switch {
		case t.flying || flying == alertsAtOnce:
		case now.Before(t.next):
			wait = min(wait, t.next.Sub(now))
		case c.now().Sub(a.At) > alertFor:
			why := cmp.Or(t.why, "no node could try it")
			t.flying = true
			flying++
			under.Go(func() { c.end(ctx, a, "not delivered within "+roughly(alertFor)+": "+why) })
		default:
			t.flying = true
			flying++
			under.Go(func() { c.deliver(ctx, to, a) })
		}
	}
	return wait
}

// forget lets go of what is not owed any more, and counts what is under way.
func (c *courier) forget(owed []*fleet.Alert) (flying int) {
	for id, t := range c.tries {
		switch {
		case t.flying:
			flying++
		case !slices.ContainsFunc(owed, func(a *fleet.Alert) bool { return a.ID == id }):
			delete(c.tries, id)
		}
	}
	return flying
}

// deliver posts one alert once.
func (c *courier) deliver(ctx context.Context, to string, a *fleet.Alert) {
	err := c.post(ctx, to, a)
	if err == nil {
		c.end(ctx, a, "")
		return
	}
	c.mu.Lock()
	t := c.tries[a.ID]
	t.why, t.flying = err.Error(), false
	t.next = time.Now().Add(min(alertFirst<<min(t.n, 16), alertLongest))
	t.n++
	n := t.n
	c.mu.Unlock()
	if ctx.Err() == nil {
		c.log.Warn("an alert could not be delivered", "alert", a.ID, "try", n, "err", err)
	}
	poke(c.pokes)
}

// end records what became of an alert. Where that fails it is owed still, and comes
// again.
func (c *courier) end(ctx context.Context, a *fleet.Alert, failed string) {
	if failed != "" {
		c.log.Warn("an alert is given up", "alert", a.ID, "kind", a.Kind, "err", failed)
	}
	c.settle(ctx, a.ID, failed)
	c.mu.Lock()
	t := c.tries[a.ID]
	t.flying, t.next = false, time.Now().Add(alertFirst)
	c.mu.Unlock()
	poke(c.pokes)
}

// post sends one alert. Its error never holds the address, which may be a secret.
func (c *courier) post(ctx context.Context, to string, a *fleet.Alert) error {
	u, err := webhookURL(to)
	if err != nil {
		return err
	}
	body, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("write the alert as JSON: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, alertTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("the address of the webhook makes no request")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "tugline")
	req.Header.Set(alertHeader, a.ID)
	res, err := c.client.Do(req)
	if err != nil {
		var outer *url.Error
		if errors.As(err, &outer) {
			err = outer.Err
		}
		return fmt.Errorf("post to the webhook: %w", err)
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, maxAlertReply) // so that the connection can be used again
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("the webhook answered %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	}
	return nil
}

// webhookURL reads the address of a webhook. Its error does not hold it.
func webhookURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Fragment != "" {
		return nil, errors.New("it is not a URL such as https://HOST/PATH")
	}
	return u, nil
}
