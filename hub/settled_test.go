package hub

import (
	"context"
	"net/http"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// A hub that starts must not answer from a state it has not read yet: a good token
// would be refused for good, and a job that was taken would be told not to exist.
func TestNothingIsAnsweredFromHalfALog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := start(t, dir, true)
	token := n.token
	var j api.Job
	for range 200 {
		n.call("POST", "/v1/jobs", "", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, &j)
	}
	n.stop()
	for range 8 {
		h, err := New(Config{Dir: dir, Listen: "127.0.0.1:0", Version: "test"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		for deadline := time.Now().Add(10 * time.Second); ; {
			req, err := http.NewRequest("GET", h.URL()+"/v1/jobs/"+string(j.ID), nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+token)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				continue // not listening yet
			}
			res.Body.Close()
			if res.StatusCode == 200 {
				break
			}
			if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
				t.Errorf("while starting: status %d, Retry-After %q; want 503 and a time", res.StatusCode, res.Header.Get("Retry-After"))
			}
			if time.Now().After(deadline) {
				t.Fatal("not ready after 10 s")
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatalf("run: %v", err)
		}
	}
}
