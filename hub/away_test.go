package hub

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// rotate asks for a new key, and gives the answer and how long it took. The mesh's is
// that of the node itself. Where nobody leads just then it asks again.
func (n *node) rotate(kind string) (code int, detail string, took time.Duration) {
	n.t.Helper()
	var p api.Problem
	path, in := "/v1/keys/rotate", any(api.RotateRequest{Kind: kind})
	if kind == "mesh" {
		path, in = "/v1/members/"+n.hub.id.Node+"/rotate", nil
	}
	n.eventually("somebody leads", func() bool {
		began := time.Now()
		p = api.Problem{}
		code = n.call(http.MethodPost, path, "", in, &p)
		took = time.Since(began)
		return !strings.Contains(p.Detail, "no hub node leads now")
	})
	return code, p.Detail, took
}

// names says whether a refusal names a node that is away and both ways out.
func names(code int, detail, id string) bool {
	return code == http.StatusConflict && strings.Contains(detail, "node "+id+" must have the new key and does not answer") &&
		strings.Contains(detail, "`tugline hub remove "+id+"`")
}

// TestRotationNamesWhoIsAway: a key that a node must have and cannot get is not replaced,
// and the answer says for which node, at once where that is known. A node that only
// joined and never came holds up the mesh's keys alone.
func TestRotationNamesWhoIsAway(t *testing.T) {
	t.Parallel()
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	k := a.ticket(api.TicketRequest{Uses: 3})
	b, c := a.join(t.TempDir(), k), a.join(t.TempDir(), k)
	a.eventually("all vote", func() bool { return a.roles() == "voter voter voter" })
	c.stop()
	if code, detail, took := a.rotate("hmac"); !names(code, detail, c.hub.id.Node) || took > keyCall+3*time.Second {
		t.Errorf("a node that has just gone: %d after %s, %s", code, took, detail)
	}
	known := func(id string) bool { // by whoever leads
		return a.hub.away(id) != nil || b.hub.away(id) != nil
	}
	a.eventually("it is known to be away", func() bool { return known(c.hub.id.Node) })
	for _, kind := range []string{"hmac", "signing", "ca", "mesh"} {
		if code, detail, took := a.rotate(kind); !names(code, detail, c.hub.id.Node) || took > keyCall-time.Second {
			t.Errorf("rotate %s: %d after %s, %s", kind, code, took, detail)
		}
	}
	if code := a.call(http.MethodDelete, "/v1/members/"+c.hub.id.Node, "", nil, nil); code != http.StatusNoContent {
		t.Fatalf("remove: %d", code)
	}
	// One that was taken in and never came.
	tk, err := wire.ParseHubTicket(k)
	if err != nil {
		t.Fatal(err)
	}
	never := fleet.HubNode{ID: "n-never", MeshKey: key(mesh.NewKey()), SealKey: bytes.Repeat([]byte{9}, 32), Endpoints: []string{"127.0.0.1:9"}, Kinds: b.hub.self().Kinds}
	lead := a
	if b.hub.leading.Load() {
		lead = b
	}
	lead.must(&state.AdmitNode{Ticket: wire.SecretHash(tk.Secret), Node: never})
	a.eventually("it learns, and is known to be away", func() bool {
		return strings.Contains(a.roles(), "learner") && known("n-never")
	})
	a.eventually("a key that it can ask for later is replaced", func() bool { code, _, _ := a.rotate("signing"); return code == http.StatusOK })
	if code, detail, took := a.rotate("mesh"); !names(code, detail, "n-never") || took > keyCall-time.Second {
		t.Errorf("rotate mesh with a learner that never came: %d after %s, %s", code, took, detail)
	}
	if code := a.call(http.MethodDelete, "/v1/members/n-never", "", nil, nil); code != http.StatusNoContent {
		t.Fatalf("remove: %d", code)
	}
	a.eventually("the mesh's keys are replaced without it", func() bool { code, _, _ := a.rotate("mesh"); return code == http.StatusOK })
	if id, code := b.submit(); code != http.StatusCreated || !a.knows(id) {
		t.Errorf("submit by way of the other node: %d", code)
	}
}

// TestJoinsAfterRotations: the log of a cluster names all the keys that its nodes ever
// had. Who joins late reads them one after the other, starts again in the middle of it,
// and is away when a key is put to use that it knows, and ends with a vote all the same.
func TestJoinsAfterRotations(t *testing.T) {
	t.Parallel()
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	var wg sync.WaitGroup
	spec := fleet.Spec{Kind: fleet.KindExec, Argv: []string{"echo", strings.Repeat("x", 2000)}}
	for range 16 {
		wg.Go(func() {
			for range 160 {
				id := fleet.JobID(newID(""))
				if err := a.hub.entries.Record(t.Context(), &state.SubmitJob{ID: id, Spec: spec}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for range 2 {
		if code, detail, _ := a.rotate("mesh"); code != http.StatusOK {
			t.Fatalf("rotate mesh: %d, %s", code, detail)
		}
	}
	// It is stopped as soon as it has joined, and reads the log after that.
	cfg := meshed(t.TempDir())
	cfg.Ticket, cfg.Version, cfg.Listen = a.ticket(api.TicketRequest{}), "test", "127.0.0.1:0"
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(300*time.Millisecond, cancel)
	if err := h.Run(ctx); err != nil {
		t.Fatal(err)
	}
	b := a.join(cfg.Dir, "")
	a.eventually("it votes", func() bool { return a.roles() == "voter voter" })
	if code, detail, _ := a.rotate("mesh"); code != http.StatusOK {
		t.Fatalf("rotate mesh beside a node that joined late: %d, %s", code, detail)
	}
	// The other node knows the next key and is away when it is put to use.
	next, err := a.hub.keys.prepare(a.hub.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.hub.announced(t.Context(), func(me *fleet.HubNode) bool { return bytes.Equal(me.NextMeshKey, key(next)) }); err != nil {
		t.Fatal(err)
	}
	if err := a.hub.knownToAll(t.Context(), key(next)); err != nil {
		t.Fatal(err)
	}
	b.stop()
	if err := a.hub.keys.adopt(a.hub.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	if err := a.hub.mesh.Rekey(next); err != nil {
		t.Fatal(err)
	}
	b = a.join(cfg.Dir, "")
	a.eventually("both take work again", func() bool {
		id, code := b.submit()
		return code == http.StatusCreated && a.knows(id)
	})
}

// TestMembersDoNotWaitForADeadLeader: whoever asks right after the leader went is told
// what the others know, and which node does not answer.
func TestMembersDoNotWaitForADeadLeader(t *testing.T) {
	t.Parallel()
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	b := a.join(t.TempDir(), a.ticket(api.TicketRequest{}))
	a.eventually("both vote", func() bool { return a.roles() == "voter voter" })
	if m, err := b.hub.Members(t.Context()); err != nil || m.SeenBy != a.hub.id.Node || len(m.Warnings) != 1 {
		t.Fatalf("while the leader is there: %+v, %v", m, err)
	}
	a.hub.mesh.SetPeers(nil) // no word comes through any more, not even a reset
	began := time.Now()
	m, err := b.hub.Members(t.Context())
	if took := time.Since(began); err != nil || took > tellTime+5*time.Second || m.SeenBy != b.hub.id.Node || len(m.Members) != 2 {
		t.Errorf("after %s: %+v, %v", took, m, err)
	}
	if w := strings.Join(m.Warnings, "; "); !strings.Contains(w, "does not answer") && !strings.Contains(w, "no node leads") {
		t.Errorf("warnings: %s", w)
	}
}

// TestRestoreAfterRotations: the archive knows the keys of its time alone, and the nodes go
// on with those of today.
func TestRestoreAfterRotations(t *testing.T) {
	t.Parallel()
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	b := a.join(t.TempDir(), a.ticket(api.TicketRequest{}))
	a.eventually("both vote", func() bool { return a.roles() == "voter voter" })
	var archive bytes.Buffer
	if err := a.hub.Backup(t.Context(), &archive, "", false); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{a, b, a} {
		if code := a.call(http.MethodPost, "/v1/members/"+n.hub.id.Node+"/rotate", "", nil, nil); code != http.StatusOK {
			t.Fatalf("rotate mesh: %d", code)
		}
	}
	if _, err := a.hub.Restore(t.Context(), &archive, ""); err != nil {
		t.Fatal(err)
	}
	a.eventually("both take work", func() bool {
		id, code := b.submit()
		return code == http.StatusCreated && a.knows(id) && a.roles() == "voter voter"
	})
	for _, n := range []*node{a, b} {
		me, _ := a.hub.entries.View().Node(n.hub.id.Node)
		if now, _ := n.hub.keys.public(); !bytes.Equal(me.MeshKey, now) {
			t.Errorf("the record of node %s has another key than it uses", me.ID)
		}
	}
}

// TestARemovalWaitsForFarewells: that one who was removed earlier is being told of it is no
// reason to refuse.
func TestARemovalWaitsForFarewells(t *testing.T) {
	t.Parallel()
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	a.hub.removing.Lock()
	time.AfterFunc(500*time.Millisecond, a.hub.removing.Unlock)
	var p api.Problem
	if code := a.call(http.MethodDelete, "/v1/members/n-nobody", "", nil, &p); code != http.StatusNotFound {
		t.Errorf("%d: %s", code, p.Detail)
	}
}
