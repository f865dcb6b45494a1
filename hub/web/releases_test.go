package web

import (
	"encoding/base64"
	"strings"
	"testing"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func TestReleases(t *testing.T) {
	w := newWorld(t)
	w.enrolled("lead")
	w.must(&state.UpdateRunner{ID: "r-lead", Facts: &fleet.RunnerFacts{Version: "1.0.0", OS: "linux", Arch: "amd64", Update: &fleet.RunnerUpdate{Policy: "ask", Offered: "1.1.0", Waits: "its owner"}}})
	key := base64.StdEncoding.EncodeToString([]byte("Ed" + strings.Repeat("k", 40)))
	program := []byte("a program")
	d := digestOf(program)
	add := api.AddRelease{Version: "1.1.0", Key: key, Files: []fleet.ReleaseFile{{OS: "linux", Arch: "amd64", SHA256: d, Size: int64(len(program)), Signature: "sig"}}}
	post := func(path string, body any) request {
		return request{method: "POST", path: path, role: fleet.RoleAdmin, body: body}
	}
	w.refuses(post("/v1/runners/lead/update", nil), 404, fleet.NotFound)
	w.refuses(post("/v1/releases", add), 404, fleet.BlobMissing)
	if a := w.do(request{method: "PUT", path: "/v1/blobs/" + string(d) + "?size=9", role: fleet.RoleAdmin, body: program, kind: "application/octet-stream"}); a.status != 201 {
		t.Fatalf("upload: %d %s", a.status, a.body)
	}
	if rel := get[api.Release](w, post("/v1/releases", add)); rel.Ring != fleet.RingCanary || len(rel.Files) != 1 {
		t.Errorf("added: %+v", rel)
	}
	if all := get[api.Releases](w, request{method: "GET", path: "/v1/releases", role: fleet.RoleViewer}); len(all.Releases) != 1 || all.Key != key || all.Releases[0].Waits == "" {
		t.Errorf("all: %+v", all)
	}
	if r := get[api.Runner](w, post("/v1/runners/lead/ring", api.SetRing{Ring: fleet.RingCanary})); r.Ring != fleet.RingCanary || r.Update == nil || r.Update.Waits != "its owner" {
		t.Errorf("ring: %+v", r)
	}
	if r := get[api.Runner](w, post("/v1/runners/lead/update", nil)); r.Wanted == nil || r.Wanted.Version != "1.1.0" || r.Wanted.Asked == "" {
		t.Errorf("asked for: %+v", r.Wanted)
	}
	w.must(&state.RecordProgress{Version: "1.1.0", Runners: map[fleet.RunnerID]fleet.Progress{"r-lead": {Failed: "it broke"}}})
	w.must(&state.MoveRelease{Version: "1.1.0", Halt: "it broke on lead"})
	if all := get[api.Releases](w, request{method: "GET", path: "/v1/releases", role: fleet.RoleViewer}); all.Releases[0].Halted == "" || len(all.Releases[0].Runners) != 1 || all.Releases[0].Runners[0].Name != "lead" {
		t.Errorf("halted: %+v", all)
	}
	if rel := get[api.Release](w, post("/v1/releases/1.1.0/offer", api.OfferRelease{Ring: fleet.RingEarly})); rel.Ring != fleet.RingEarly || rel.Halted != "" || len(rel.Runners) != 0 {
		t.Errorf("offered anew: %+v", rel)
	}
	w.refuses(post("/v1/releases/1.1.0/offer", api.OfferRelease{Ring: "outer"}), 400, fleet.BadRequest)
	w.refuses(post("/v1/releases/9.9.9/offer", api.OfferRelease{Ring: fleet.RingAll}), 404, fleet.NotFound)
	w.refuses(post("/v1/runners/lead/update", api.UpdateRunner{Version: "1.0.0"}), 404, fleet.NotFound)
	if a := w.do(request{method: "DELETE", path: "/v1/releases/1.1.0", role: fleet.RoleAdmin}); a.status != 204 {
		t.Errorf("removed: %d %s", a.status, a.body)
	}
}
