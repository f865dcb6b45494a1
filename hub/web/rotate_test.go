package web

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// ringed is a world whose keys are what its log says of them.
func ringed(t *testing.T) (w *world, overlaps map[string]time.Duration) {
	overlaps = map[string]time.Duration{}
	w = newWorld(t, func(c *Config) {
		c.Keys = func() api.Keys {
			var out api.Keys
			for _, kind := range fleet.KeyKinds {
				rows := w.View().Keys(kind)
				for i, r := range rows {
					k := api.Key{Kind: kind, Generation: r.Generation, ID: r.ID, ActiveSince: r.At, Active: i == len(rows)-1, Until: r.Until}
					if kind == fleet.KeyHMAC {
						n := 3
						k.Runners = &n
					}
					out.Keys = append(out.Keys, k)
				}
			}
			return out
		}
		c.Rotate = func(ctx context.Context, h state.Head, kind string, overlap time.Duration) (state.Result, error) {
			overlaps[kind] = overlap
			n := uint64(len(w.View().Keys(kind)) + 1)
			sum := HashSecret(fmt.Sprint(kind, n))
			return w.ProposeAs(ctx, h, &state.ActivateKeys{Kind: kind, Generation: n, ID: fmt.Sprintf("%s-%d", kind, n), Digest: sum})
		}
	})
	return w, overlaps
}

func TestRotate(t *testing.T) {
	w, overlaps := ringed(t)
	for i, c := range []struct {
		body    api.RotateRequest
		overlap time.Duration
		says    []string
	}{
		{api.RotateRequest{Kind: "hmac"}, defaultOverlap, []string{"without a pause", "0 use an old one", "30 days", "hub ticket --for"}},
		{api.RotateRequest{Kind: "hmac"}, defaultOverlap, []string{"3 use an old one"}},
		{api.RotateRequest{Kind: "signing"}, defaultOverlap, []string{"nothing to do"}},
		{api.RotateRequest{Kind: "ca"}, defaultOverlap, []string{"7 days", "hub keys --ca"}},
		{api.RotateRequest{Kind: "ca", Overlap: "36h"}, 36 * time.Hour, []string{"36h"}},
	} {
		r := get[api.Rotation](w, request{method: "POST", path: "/v1/keys/rotate", role: fleet.RoleAdmin, key: fmt.Sprint("k", i), body: c.body})
		if r.Key.Kind != c.body.Kind || !r.Key.Active || overlaps[c.body.Kind] != c.overlap {
			t.Errorf("%+v gave %+v with an overlap of %s", c.body, r.Key, overlaps[c.body.Kind])
		}
		for _, s := range c.says {
			if !strings.Contains(r.Next, s) {
				t.Errorf("%+v: %q does not say %q", c.body, r.Next, s)
			}
		}
	}
	again := get[api.Rotation](w, request{method: "POST", path: "/v1/keys/rotate", role: fleet.RoleAdmin, key: "k0", body: api.RotateRequest{Kind: "hmac"}})
	if again.Key.Generation != 1 {
		t.Errorf("a repeat rotated: generation %d", again.Key.Generation)
	}
	keys := get[api.Keys](w, request{method: "GET", path: "/v1/keys", role: fleet.RoleViewer})
	if len(keys.Keys) != 5 {
		t.Errorf("%d keys; want 5", len(keys.Keys))
	}
	records := get[api.AuditRecords](w, request{method: "GET", path: "/v1/audit", role: fleet.RoleAdmin}).Records
	if a := records[0]; a.Command != "keys.rotate" || a.Subject != "ca/2" || a.Detail != "ca-2" || a.Actor != "t-admin" {
		t.Errorf("audited as %+v", a)
	}
}

func TestRotateRefuses(t *testing.T) {
	w, _ := ringed(t)
	for _, c := range []struct {
		role fleet.Role
		body any
		code fleet.Code
		at   int
	}{
		{fleet.RoleOperator, api.RotateRequest{Kind: "hmac"}, fleet.Forbidden, 403},
		{fleet.RoleAdmin, api.RotateRequest{Kind: "tls"}, fleet.BadRequest, 400},
		{fleet.RoleAdmin, api.RotateRequest{Kind: "hmac", Overlap: "1h"}, fleet.BadRequest, 400},
		{fleet.RoleAdmin, api.RotateRequest{Kind: "ca", Overlap: "soon"}, fleet.BadRequest, 400},
		{fleet.RoleAdmin, api.RotateRequest{Kind: "ca", Overlap: "999ms"}, fleet.BadRequest, 400},
		{fleet.RoleAdmin, api.RotateRequest{Kind: "ca", Overlap: "2161h"}, fleet.BadRequest, 400},
	} {
		w.refuses(request{method: "POST", path: "/v1/keys/rotate", role: c.role, body: c.body}, c.at, c.code)
	}
	if n := len(w.View().Keys("hmac")) + len(w.View().Keys("ca")); n != 0 {
		t.Errorf("%d keys after refusals", n)
	}
}
