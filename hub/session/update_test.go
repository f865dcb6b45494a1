package session

import (
	"bytes"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// A release is offered by a signed order for this runner alone, and its program is given
// out to whom it is offered.
func TestAReleaseIsOffered(t *testing.T) {
	t.Parallel()
	over(t, func(t *testing.T, connect func(*agent) talk) {
		program := random(t, 5000)
		var to atomic.Value // fleet.RunnerID
		to.Store(fleet.RunnerID(""))
		h := newHub(t, func(c *Config) {
			c.Update = func(_ state.View, r *fleet.Runner) *wire.Update {
				if r.ID != to.Load() {
					return nil
				}
				return &wire.Update{Version: "2.0.0", OS: "linux", Arch: "amd64", SHA256: digest(program), Size: 5000, Signature: "sig", Asked: "a1"}
			}
		})
		a, b := h.enrolled(), h.enrolled()
		b.journal = "j-2"
		k, other := connect(a), connect(b)
		if err := h.blobs.Put(t.Context(), digest(program), 5000, bytes.NewReader(program)); err != nil {
			t.Fatal(err)
		}
		if rep := a.beat(k); rep.Update != nil {
			t.Errorf("offered: %+v", rep.Update)
		}
		if res, _ := a.blobCall(k, http.MethodGet, digest(program), "", nil); res.StatusCode != http.StatusForbidden {
			t.Errorf("a program that is not offered: %d", res.StatusCode)
		}
		to.Store(a.id)
		rep := a.beat(k)
		if rep.Update == nil {
			t.Fatal("nothing is offered")
		}
		want := wire.Want{Cluster: testCluster, Epoch: 1, Runner: a.id}
		o, err := wire.VerifyOrder(a.orders, rep.Update.Order, rep.Update.Body, want, rep.Time)
		if err != nil || o.Kind != wire.OrderUpdate || o.ID != "update/2.0.0/"+string(digest(program))+"/a1" || o.Job != "" {
			t.Errorf("order %+v, %v", o, err)
		}
		want.Runner = b.id
		if _, err := wire.VerifyOrder(a.orders, rep.Update.Order, rep.Update.Body, want, rep.Time); err == nil {
			t.Error("the order is good for another runner too")
		}
		changed := bytes.Replace(rep.Update.Body, []byte("2.0.0"), []byte("9.0.0"), 1)
		want.Runner = a.id
		if _, err := wire.VerifyOrder(a.orders, rep.Update.Order, changed, want, rep.Time); err == nil {
			t.Error("the order is good for another release too")
		}
		if res, got := a.blobCall(k, http.MethodGet, digest(program), "", nil); res.StatusCode != http.StatusOK || !bytes.Equal(got, program) {
			t.Errorf("the program: %d, %d bytes", res.StatusCode, len(got))
		}
		if res, _ := b.blobCall(other, http.MethodGet, digest(program), "", nil); res.StatusCode != http.StatusForbidden {
			t.Errorf("another runner's program: %d", res.StatusCode)
		}
	})
}

// Whoever enrols is told the key of releases, where there is one.
func TestEnrolmentNamesTheReleaseKey(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	enrolled := func() string {
		t.Helper()
		_, body := h.newAgent().enrol(h.ticket())
		var e wire.Enrolled
		if err := wire.Decode(body, &e); err != nil {
			t.Fatal(err)
		}
		return e.ReleaseKey
	}
	if k := enrolled(); k != "" {
		t.Errorf("key %q before there is one", k)
	}
	key := "RWQ" + strings.Repeat("A", 53)
	h.must(&state.Set{Name: fleet.SettingReleaseKey, Value: key})
	if k := enrolled(); k != key {
		t.Errorf("key %q, want %q", k, key)
	}
	h.must(&state.Set{Name: fleet.SettingReleaseKey, Value: "nonsense"})
	if k := enrolled(); k != "" {
		t.Errorf("key %q of a setting that cannot be read", k)
	}
}
