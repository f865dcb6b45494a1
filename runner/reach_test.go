package runner

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"tugline.dev/tugline/shared/wire"
)

func TestHowFarAHubIsReached(t *testing.T) {
	serve := func(h http.HandlerFunc) string {
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		return srv.URL
	}
	upgrades := websocket.Upgrader{Subprotocols: []string{wire.Subprotocol}}
	gone := httptest.NewServer(nil)
	gone.Close()
	hubs := map[string]string{ // and where the way to it ends
		serve(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz" {
				w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
				return
			}
			if c, err := upgrades.Upgrade(w, r, nil); err == nil {
				c.Close()
			}
		}): "",
		serve(func(http.ResponseWriter, *http.Request) {}):                         "WebSocket", // a proxy that passes over the upgrade
		serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }): "connection",
		gone.URL:                          "connection",
		"http://there-is-none.invalid:80": "name",
	}
	dir := t.TempDir()
	id, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	id.Runner, id.Name, id.Plain = "r-1", "r", true
	for hub := range hubs {
		id.Hubs = append(id.Hubs, hub, hub) // told twice, tried once
	}
	b, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(identityFile(dir), b, 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := Reach(t.Context(), dir, false)
	if err != nil || len(all) != len(hubs) {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, r := range all {
		if want := hubs[r.Hub]; r.Step != want || (r.Err == nil) != (want == "") {
			t.Errorf("%s: %q, %v; want %q", r.Hub, r.Step, r.Err, want)
		}
		if r.Step == "" && (!r.Told || r.Ahead < 59*time.Minute || r.Ahead > 61*time.Minute) {
			t.Errorf("this clock is %s ahead of the hub's, %v; want an hour", r.Ahead, r.Told)
		}
	}
	if _, err := Reach(t.Context(), t.TempDir(), false); err == nil || !strings.Contains(err.Error(), "not enrolled") {
		t.Error(err)
	}
}
