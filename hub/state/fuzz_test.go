package state

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// seeds are the entries of a log that uses every command.
func seeds(t testing.TB) [][]byte {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "c", Epoch: 1})
	g.enrol("r1")
	g.submit(gridJob)
	f := g.run(gridJob, "r1")
	j := g.job(gridJob)
	for _, c := range slices.Concat(commandsOfGrid, ruledCommands) {
		g.try(aim(c.make(g, j, f, j.Current()), f))
	}
	g.try(&Set{Name: "a", Value: "b"})
	g.try(&CreateToken{Token: fleet.Token{ID: "t"}})
	g.try(&RevokeToken{ID: "t"})
	ofTheCluster(g)
	ofMachines(g)
	ofPlacement(g)
	ofBrowsers(g)
	ofPasskeys(g)
	return g.log
}

// ofTheCluster applies every command about hub nodes, epochs, orphans and silence.
func ofTheCluster(g *rig) {
	g.enrol("r7")
	g.do(&SilenceRunner{ID: "r7", Since: g.now})
	g.do(&SilenceRunner{ID: "r7"})
	g.do(&SilenceRunner{ID: "r7", Since: g.now.Add(-time.Minute)})
	first := hubNode("n-1")
	g.do(&UpdateNode{Node: first})
	first.NextMeshKey = hubNode("next").MeshKey
	g.do(&UpdateNode{Node: first})
	for _, k := range []struct{ id, replace string }{{"n-2", ""}, {"n-3", ""}, {"n-4", "n-2"}} {
		c := &CreateTicket{Hash: digest("ticket of " + k.id), TTL: time.Hour, Uses: 1, Role: fleet.TicketHub, Guest: first.SealKey, Replace: k.replace}
		g.do(c)
		g.do(&AdmitNode{Ticket: c.Hash, Node: hubNode(k.id), Replaces: k.replace})
		g.repeated(&AdmitNode{Ticket: c.Hash, Node: hubNode(k.id)})
	}
	g.do(&RemoveNode{ID: "n-3", Why: "worn out"})
	g.submit("before", push)
	f := g.run("before", "r7")
	g.submit("pending")
	g.assign("pending", "r7")
	g.submit("begun")
	begun := g.assign("begun", "r7")
	g.do(&RaiseEpoch{To: g.m.View().Meta().Epoch + 3, Cause: "recover", Nodes: []fleet.HubNode{first, hubNode("n-5")}})
	epoch := g.m.View().Meta().Epoch
	g.refused(fleet.StaleEpoch, &RaiseEpoch{To: epoch - 1, Cause: "late"})
	g.repeated(&RaiseEpoch{To: epoch, Cause: "recover"})
	g.do(&RenewAttempt{Job: "before", Fence: f, Epoch: epoch})
	g.do(&RenewAttempt{Job: "begun", Fence: begun, Epoch: epoch, Accepted: true})
	for i, id := range []fleet.JobID{"unknown", "pending", "left"} {
		o := g.orphan(id, fleet.Fence{Epoch: f.Epoch, Index: uint64(5000 + i)})
		o.Runner, o.RunnerName = "r7", "r7"
		g.do(&ReportOrphan{Orphan: o})
		o.Log.Sealed = true
		g.do(&ReportOrphan{Orphan: o})
		if i < 2 {
			g.do(&SettleOrphan{ID: o.Fence.String(), Adopt: i == 0})
		}
	}
}

// FuzzDecode: any bytes are an error or an entry that encodes to itself again.
func FuzzDecode(f *testing.F) {
	for _, e := range seeds(f) {
		f.Add(e)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, c, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Encode(h, c)
		if err != nil {
			return // grown over the bound by the escapes of JSON
		}
		h2, c2, err := Decode(again)
		if err != nil {
			t.Fatalf("decoded, encoded and not decoded: %v", err)
		}
		x, _ := json.Marshal(c)
		y, _ := json.Marshal(c2)
		if h != h2 || !bytes.Equal(x, y) {
			t.Fatalf("%+v %s became %+v %s", h, x, h2, y)
		}
	})
}

// FuzzApply: whatever can be decoded can be applied in any state, and what becomes
// of it survives a snapshot.
func FuzzApply(f *testing.F) {
	all := seeds(f)
	for i, e := range all {
		f.Add(uint8(i%len(situations)), e, all[(i+1)%len(all)])
	}
	f.Fuzz(func(t *testing.T, situation uint8, one, two []byte) {
		g := newRig(t)
		g.enrol("r1")
		g.enrol("r2")
		situations[int(situation)%len(situations)].make(g)
		for _, e := range [][]byte{one, two} {
			g.index++
			if _, _, err := g.m.Apply(g.index, e); err != nil {
				g.index--
			}
		}
		g.try(&Expire{Jobs: []fleet.JobID{gridJob}, Limit: 9})
		snap := snapshot(t, g.m)
		if again := snapshot(t, restored(t, snap)); !bytes.Equal(snap, again) {
			t.Fatalf("restored from\n%s\nis\n%s", snap, again)
		}
	})
}

// FuzzRestore: any bytes are an error or a state that every command can work on.
func FuzzRestore(f *testing.F) {
	for _, s := range situations {
		g := newRig(f)
		g.enrol("r1")
		g.enrol("r2")
		s.make(g)
		f.Add(snapshot(f, g.m))
	}
	g := newRig(f)
	ofTheCluster(g)
	f.Add(snapshot(f, g.m))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := New()
		if m.Restore(bytes.NewReader(b)) != nil {
			return
		}
		var ids []fleet.JobID
		m.View().JobsOldest(func(j *fleet.Job) bool { ids = append(ids, j.ID); return len(ids) < 3 })
		m.View().Queue(func(j *fleet.Job) bool { return j.State == fleet.Queued })
		m.View().Open(func(o Open) bool { Want(o.Job, o.Turn, o.Attempt); return true })
		g := &rig{t: t, m: m, index: m.View().Meta().Index, now: epoch0, actor: "t"}
		if g.index > 1<<60 {
			return
		}
		for _, id := range ids {
			for _, c := range []Command{&CancelJob{Job: id}, &RetryJob{Job: id}, &FollowUp{Job: id}, &CancelJob{Job: id, Abandon: true}, &RemoveRunner{ID: "r1", AbandonJobs: true}} {
				g.try(c)
			}
		}
		for _, o := range m.View().Orphans() {
			g.try(&SettleOrphan{ID: o.ID, Adopt: true})
		}
		for _, n := range m.View().Nodes() {
			g.try(&RemoveNode{ID: n.ID})
		}
		g.try(&RaiseEpoch{To: m.View().Meta().Epoch + 1, Cause: "restore"})
		g.now = g.now.Add(2 * keepOrphans)
		g.try(&Expire{Limit: 9})
	})
}
