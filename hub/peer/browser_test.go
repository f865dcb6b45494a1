package peer

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// A browser signs in at any node, and its session is good at every node at once, also at
// one that is behind.
func TestSessionsOfBrowsersHoldOnEveryNode(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	status, h, body := o.ask("n-b", "POST", "/v1/session", `{"token":"`+token+`"}`, "Authorization", "")
	c, err := http.ParseSetCookie(h.Get("Set-Cookie"))
	if status != 200 || err != nil || len(h.Values("Set-Cookie")) != 1 {
		t.Fatalf("sign in at a follower: %d %s %v", status, body, h)
	}
	cookie := []string{"Authorization", "", "Cookie", c.Name + "=" + c.Value, "Sec-Fetch-Site", "same-origin"}
	for id := range o.nodes {
		if status, _, body := o.ask(id, "GET", "/v1/session", "", cookie...); status != 200 {
			t.Errorf("at %s: %d %s", id, status, body)
		}
		if status, _, body := o.ask(id, "POST", "/v1/jobs", `{"kind":"exec","argv":["true"]}`, cookie...); status != 201 {
			t.Errorf("a job at %s: %d %s", id, status, body)
		}
		if status, _, _ := o.ask(id, "POST", "/v1/jobs", `{"kind":"exec","argv":["true"]}`, "Authorization", "", "Cookie", c.Name+"="+c.Value, "Sec-Fetch-Site", "cross-site"); status != 403 {
			t.Errorf("a job by another site at %s: %d", id, status)
		}
	}
	// One that is behind waits for it.
	o.hold("n-c", true)
	_, h, _ = o.ask("n-a", "POST", "/v1/session", `{"token":"`+token+`"}`, "Authorization", "")
	late, err := http.ParseSetCookie(h.Get("Set-Cookie"))
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { o.hold("n-c", false) })
	if status, _, body := o.ask("n-c", "GET", "/v1/session", "", "Authorization", "", "Cookie", late.Name+"="+late.Value); status != 200 {
		t.Errorf("at the node that was behind: %d %s", status, body)
	}
	if status, _, body := o.ask("n-c", "DELETE", "/v1/session", "", cookie...); status != 204 {
		t.Fatalf("sign out at a follower: %d %s", status, body)
	}
	for id := range o.nodes {
		if status, _, _ := o.ask(id, "GET", "/v1/jobs", "", cookie...); status != 401 {
			t.Errorf("at %s after its end: %d", id, status)
		}
	}
}

// TestFeedGoesOnElsewhere: a page that was cut learns at another node, under another
// leader, of all that changed since, and of nothing else.
func TestFeedGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	seen := map[fleet.JobID]bool{}
	read := func(feed *events, until fleet.JobID) {
		t.Helper()
		for !seen[until] {
			if !feed.in.Scan() {
				t.Fatalf("the feed ended: %v", feed.in.Err())
			}
			line := feed.in.Text()
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				feed.last = id
			}
			if strings.HasPrefix(line, "event: reset") {
				t.Fatal("the feed has lost its place")
			}
			var c api.FeedChanges
			if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &c) == nil {
				for _, j := range c.Jobs {
					seen[j.ID] = true
				}
			}
		}
	}
	feed := o.events("n-b", "/v1/feed", "")
	first, _ := o.submit("n-a")
	read(feed, first)
	feed.body.Close()
	second, _ := o.submit("n-b")
	o.elect("n-c")
	third, _ := o.submit("n-b")
	feed = o.events("n-a", "/v1/feed", feed.last)
	read(feed, third)
	if !seen[second] || len(seen) != 3 {
		t.Errorf("seen %v; want %s, %s and %s", seen, first, second, third)
	}
}
