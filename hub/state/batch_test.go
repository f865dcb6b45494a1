package state

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

// TestBatches: the same log in batches of any size gives the same results and leads
// to the same state, and nothing of a batch is seen before its commit.
func TestBatches(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		straight, batched := New(), New()
		var entries [][]byte
		var want []Result
		now := epoch0
		apply := func(h Head, c Command) {
			h.At = now
			e, err := Encode(h, c)
			if err != nil {
				t.Fatal(err)
			}
			res, _, err := straight.Apply(uint64(len(entries)+1), e)
			if err != nil {
				t.Fatal(err)
			}
			res.Job = nil
			entries, want = append(entries, e), append(want, res)
		}
		apply(Head{Actor: "hub"}, &InitCluster{Cluster: "c", Epoch: 1})
		for _, id := range []fleet.RunnerID{"r1", "r2"} {
			apply(Head{Actor: "hub"}, &CreateTicket{Hash: digest(string(id)), Uses: 3, TTL: time.Hour})
			apply(Head{Actor: "hub"}, &Enrol{Ticket: digest(string(id)), ID: id, Name: "box", SignKey: []byte(id)})
		}
		for range 30 {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{-5, 0, 1, 30, 5000}).Draw(t, "seconds")) * time.Second)
			h := Head{Actor: rapid.SampledFrom([]string{"hub", "t-1", "t-2"}).Draw(t, "actor")}
			if rapid.IntRange(0, 3).Draw(t, "keyed") == 0 {
				h.Key, h.Route, h.Hash = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "idempotency key"), "POST /v1/jobs", digest("x")
			}
			apply(h, anyCommand(t, straight))
		}
		for at := 0; at < len(entries); {
			before := snapshotOf(t, batched)
			batched.Begin()
			for n := rapid.IntRange(1, 12).Draw(t, "batch"); n > 0 && at < len(entries); n-- {
				res, _, err := batched.Apply(uint64(at+1), entries[at])
				if err != nil {
					t.Fatal(err)
				}
				res.Job = nil
				if d := cmp.Diff(want[at], res); d != "" {
					t.Fatalf("entry %d in a batch gave (-alone +batch)\n%s", at+1, d)
				}
				at++
			}
			if got := snapshotOf(t, batched); !bytes.Equal(got, before) {
				t.Fatal("a batch was seen before its commit")
			}
			batched.Commit()
			checkState(t, batched)
		}
		if a, b := snapshotOf(t, straight), snapshotOf(t, batched); !bytes.Equal(a, b) {
			t.Fatalf("in batches the log leads to\n%s\ninstead of\n%s", b, a)
		}
	})
}

// spoiler writes and is refused all the same.
type spoiler struct{ job *fleet.Job }

func (spoiler) kind() Kind { return 0 }

func (s spoiler) apply(t *txn) Result {
	t.put(s.job)
	t.meta.Cluster = "another"
	return refuse(fleet.Conflict, "spoiled")
}

// TestRefusedInBatch: what a refused command wrote is gone, what came before it in
// the batch stands, and time does not run backwards.
func TestRefusedInBatch(t *testing.T) {
	m := New()
	m.Begin()
	by := func(seconds int) Head {
		return Head{Actor: "t-1", At: epoch0.Add(time.Duration(seconds) * time.Second)}
	}
	take := func(index uint64, h Head, c Command) Result {
		res, _ := m.batch.take(index, h, c)
		return res
	}
	take(1, by(0), &InitCluster{Cluster: "c", Epoch: 1})
	take(2, by(50), &RevokeToken{ID: "none"}) // refused, and its time counts
	take(3, by(10), &SubmitJob{ID: "a", Spec: agentSpec()})
	bad := &fleet.Job{ID: "a", State: fleet.Succeeded, Turns: []*fleet.Turn{{N: 1}}}
	if res := take(4, by(90), spoiler{bad}); res.Code != fleet.Conflict {
		t.Errorf("the spoiler gave %+v", res)
	}
	take(5, by(20), &SubmitJob{ID: "b", Spec: agentSpec()})
	m.Commit()
	v := m.View()
	for id, at := range map[fleet.JobID]int{"a": 50, "b": 90} {
		j, ok := v.Job(id)
		if !ok || j.State != fleet.Queued || !j.CreatedAt.Equal(epoch0.Add(time.Duration(at)*time.Second)) {
			t.Errorf("job %s is %+v, want it queued at %d s", id, j, at)
		}
	}
	if v.Meta().Cluster != "c" || v.Meta().Index != 5 || v.Count("queued:t-1") != 2 || v.Count("jobs") != 2 || len(v.Audit(0, 10)) != 3 {
		t.Errorf("meta %+v, %d queued, %d jobs, %d audits", v.Meta(), v.Count("queued:t-1"), v.Count("jobs"), len(v.Audit(0, 10)))
	}
}
