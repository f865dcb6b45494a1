package state

import (
	"bytes"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

func TestRunnersWithAMeshKey(t *testing.T) {
	r := newRig(t)
	guest := bytes.Repeat([]byte{7}, fleet.MeshKeyBytes)
	ticket := func(name string, guest []byte) fleet.Digest {
		h := digest(name)
		r.do(&CreateTicket{Hash: h, TTL: time.Hour, Uses: 1, Guest: guest})
		return h
	}
	r.refused(fleet.BadRequest, &CreateTicket{Hash: digest("short"), TTL: time.Hour, Uses: 1, Guest: guest[:8]})
	h := ticket("a", guest)
	if g := r.m.View().RunnerGuests(r.now); len(g) != 1 || len(r.m.View().Guests(r.now)) != 0 {
		t.Errorf("guests %v; want the runner's ticket, and none of a hub", g)
	}
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, fleet.MeshKeyBytes) }
	enrol := func(h fleet.Digest, id string, sign byte, mesh []byte) *Enrol {
		return &Enrol{Ticket: h, ID: fleet.RunnerID(id), Name: id, SignKey: key(sign), BoxKey: key(9), MachineID: "m", MeshKey: mesh}
	}
	r.refused(fleet.BadRequest, enrol(h, "r-1", 1, []byte{1, 2, 3}))
	r.do(enrol(h, "r-1", 1, key(21)))
	all := r.m.View().MeshRunners()
	if len(all) != 1 || !bytes.Equal(all[0].MeshKey, key(21)) {
		t.Fatalf("runners in the tunnel: %v", all)
	}
	// The answer may have been lost: the ticket's key still knocks, for a day.
	end := r.now.Add(time.Hour)
	if n := len(r.m.View().RunnerGuests(end.Add(time.Hour))); n != 1 {
		t.Errorf("an hour after the end of a used ticket %d may knock; want 1", n)
	}
	if n := len(r.m.View().RunnerGuests(end.Add(25 * time.Hour))); n != 0 {
		t.Errorf("a day later %d may knock", n)
	}
	r.refused(fleet.Conflict, enrol(ticket("b", nil), "r-2", 2, key(21)))
	r.do(enrol(ticket("c", nil), "r-3", 3, nil))
	if n := len(r.m.View().MeshRunners()); n != 1 {
		t.Errorf("%d runners in the tunnel; one without a key is none", n)
	}
	r.do(&RemoveRunner{ID: "r-1"})
	if n := len(r.m.View().MeshRunners()); n != 0 {
		t.Errorf("a runner that was removed may still come through the tunnel")
	}
	r.do(enrol(ticket("d", nil), "r-4", 4, key(21)))
	if n := len(r.m.View().RunnerGuests(r.now)); n != 1 {
		t.Errorf("%d tickets open the tunnel; those without a key do not", n)
	}
}
