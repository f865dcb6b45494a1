package state

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// keyed applies a submit under an idempotency key.
func (g *rig) keyed(actor, key, body string, id fleet.JobID) Result {
	g.t.Helper()
	res, _ := g.apply(Head{Actor: actor, Route: "POST /v1/jobs", Key: key, Hash: digest(body)}, &SubmitJob{ID: id, Spec: agentSpec()})
	return res
}

// TestIdempotency: the same key gives the same job, other content is refused, and a
// refusal is not remembered.
func TestIdempotency(t *testing.T) {
	g := newRig(t)
	if r := g.keyed("t-1", "k", "body", "a"); r.ID != "a" || r.Repeated {
		t.Fatalf("first submit gave %+v", r)
	}
	if r := g.keyed("t-1", "k", "body", "b"); r.ID != "a" || !r.Repeated || r.Job == nil {
		t.Errorf("repeated submit gave %+v", r)
	}
	if r := g.keyed("t-1", "k", "other", "c"); r.Code != fleet.KeyReused {
		t.Errorf("another body under the key gave %+v", r)
	}
	if r := g.keyed("t-2", "k", "body", "d"); r.ID != "d" || r.Repeated {
		t.Errorf("the key of another token gave %+v", r)
	}
	if r := g.keyed("t-1", "k2", "body", "a"); r.Code != fleet.Conflict {
		t.Errorf("a job id taken gave %+v", r)
	}
	if r := g.keyed("t-1", "k2", "body", "e"); r.ID != "e" || r.Repeated {
		t.Errorf("the key of a refusal gave %+v", r)
	}
	if n := g.m.View().Count("idem"); n != 3 {
		t.Errorf("%d keys are held, want 3", n)
	}
}

// TestIdempotencyExpiry: a key is kept a day of state time, never less.
func TestIdempotencyExpiry(t *testing.T) {
	g := newRig(t)
	g.keyed("t-1", "k", "body", "a")
	made := g.now
	g.now = made.Add(KeepKeys - 2*time.Second)
	g.do(&Expire{Limit: 10, AuditAge: 365 * 24 * time.Hour})
	if r := g.keyed("t-1", "k", "body", "b"); r.ID != "a" {
		t.Errorf("a key was dropped early: %+v", r)
	}
	g.do(&Expire{Limit: 0})
	if n := g.m.View().Count("idem:t-1"); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
	g.do(&Expire{Limit: 10, AuditAge: 365 * 24 * time.Hour})
	if n := g.m.View().Count("idem:t-1"); n != 0 {
		t.Errorf("%d keys after a day, want 0", n)
	}
	if r := g.keyed("t-1", "k", "body", "b"); r.ID != "b" {
		t.Errorf("an expired key gave %+v", r)
	}
}

// TestIdempotencyBounds: at the bound new keys are refused, the held ones still work.
func TestIdempotencyBounds(t *testing.T) {
	g := newRig(t)
	g.keyed("t-1", "held", "body", "a")
	tx := begin(g.m.current.Load())
	tx.add("idem:t-1", MaxKeysPerToken-1)
	tx.commit()
	if r := g.keyed("t-1", "new", "body", "b"); r.Code != fleet.KeysFull {
		t.Errorf("over a token's bound: %+v", r)
	}
	if r := g.keyed("t-1", "held", "body", "b"); r.ID != "a" {
		t.Errorf("a held key at the bound: %+v", r)
	}
	if r := g.keyed("t-2", "new", "body", "c"); r.ID != "c" {
		t.Errorf("another token: %+v", r)
	}
	tx = begin(g.m.current.Load())
	tx.add("idem", MaxKeys)
	tx.commit()
	if r := g.keyed("t-2", "new2", "body", "d"); r.Code != fleet.KeysFull {
		t.Errorf("over the bound of all: %+v", r)
	}
	g.submit("e") // without a key nothing is in the way
}

// TestQueueBounds: of a token, then of all.
func TestQueueBounds(t *testing.T) {
	g := newRig(t)
	for n := range MaxQueuePerUser {
		g.submit(jobID(n))
	}
	g.refused(fleet.QueueFull, &SubmitJob{ID: "one more", Spec: agentSpec()})
	g.actor = "t-other"
	g.submit("one more")
	tx := begin(g.m.current.Load())
	tx.add("queued", MaxQueue-tx.count("queued"))
	tx.commit()
	g.refused(fleet.QueueFull, &SubmitJob{ID: "last", Spec: agentSpec()})
}

// TestTickets: consumed for a key, which may repeat it until a day past its end.
func TestTickets(t *testing.T) {
	g := newRig(t)
	g.refused(fleet.BadRequest, &CreateTicket{Hash: "short", Uses: 1})
	k := digest("secret")
	g.do(&CreateTicket{Hash: k, TTL: time.Hour, Uses: 1, Labels: map[string]string{"team": "a"}})
	g.refused(fleet.Conflict, &CreateTicket{Hash: k, TTL: time.Hour, Uses: 1})
	end := g.now.Add(time.Hour)
	join := func(id fleet.RunnerID, key string) *Enrol {
		return &Enrol{Ticket: k, ID: id, Name: "box", SignKey: []byte(key), Labels: map[string]string{"team": "b", "x": "y"}}
	}
	g.refused(fleet.TicketInvalid, &Enrol{Ticket: digest("other")})
	g.do(join("r1", "one"))
	r, _ := g.m.View().Runner("r1")
	if r.Labels["team"] != "a" || r.Labels["x"] != "y" || r.Generation != 1 {
		t.Errorf("runner is %+v", r)
	}
	if res := g.repeated(join("r2", "one")); res.ID != "r1" {
		t.Errorf("the same key got %+v", res)
	}
	g.refused(fleet.TicketUsed, join("r2", "two"))
	g.now = end.Add(time.Minute)
	g.refused(fleet.TicketExpired, join("r2", "two"))
	g.repeated(join("r2", "one"))
	g.now = end.Add(KeepKeys + time.Minute)
	g.refused(fleet.TicketExpired, join("r2", "one"))
	g.do(&Expire{Limit: 1, AuditAge: 1000 * time.Hour})
	g.refused(fleet.TicketInvalid, join("r2", "one"))

	k = digest("two uses")
	g.do(&CreateTicket{Hash: k, TTL: time.Hour, Uses: 2})
	g.refused(fleet.Conflict, join("r1", "three"))
	g.do(join("r2", "three"))
	before := g.m.View()
	if r, _ := g.m.View().Runner("r2"); r.Name != "box-2" {
		t.Errorf("the name taken became %q", r.Name)
	}
	g.do(&RemoveRunner{ID: "r2"})
	g.refused(fleet.RunnerUnknown, join("r3", "three"))
	g.do(join("r3", "four"))
	if was, _ := before.Ticket(k); len(was.Consumed) != 1 || was.Uses != 1 {
		t.Errorf("a view from before shows %+v", was)
	}
	if r, _ := g.m.View().FindRunner("box-2"); r == nil || r.ID != "r3" {
		t.Errorf("a name that became free went to %+v", r)
	}
}

// TestEnrolAnew keeps the id, raises the floor and loses what ran.
func TestEnrolAnew(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	g.run("a", "r1")
	g.refused(fleet.NotFound, &CreateTicket{Hash: digest("x"), For: "r9", Uses: 1})
	g.do(&RevokeRunner{ID: "r1"})
	g.do(&CreateTicket{Hash: digest("x"), For: "r1", Uses: 2, TTL: time.Hour})
	if r := g.do(&Enrol{Ticket: digest("x"), ID: "ignored", SignKey: []byte("new"), MachineID: "m2"}); r.ID != "r1" {
		t.Errorf("enrolled as %+v", r)
	}
	r, _ := g.m.View().Runner("r1")
	if r.Generation != 2 || r.Floor != 2 || r.JournalID != "" || r.JournalCount != 0 || r.MachineID != "m2" || r.Name != "r1" {
		t.Errorf("runner is %+v", r)
	}
	g.is("a", fleet.Lost)
	g.do(&Enrol{Ticket: digest("x"), SignKey: []byte("newer")})
	g.refused(fleet.TicketUsed, &Enrol{Ticket: digest("x"), SignKey: []byte("new")})
}

// TestConflict: clearing it takes the next session's identity as the right one.
func TestConflict(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	why, none := "two machines", ""
	g.do(&FlagRunner{ID: "r1", Conflict: &why})
	g.refused(fleet.Conflict, &AssignJob{Job: "a", Runner: "r1", Turn: 1, Slots: 1})
	g.do(&FlagRunner{ID: "r1", Conflict: &none})
	if r, _ := g.m.View().Runner("r1"); r.MachineID != "" || r.JournalCount != 0 {
		t.Errorf("runner is %+v", r)
	}
	g.assign("a", "r1")
}

// TestLastAdmin: one admin token that works is always left.
func TestLastAdmin(t *testing.T) {
	g := newRig(t)
	make := func(id fleet.TokenID, role fleet.Role, ttl time.Duration) {
		g.do(&CreateToken{Token: fleet.Token{ID: id, Role: role, Hash: digest(string(id))}, TTL: ttl})
	}
	make("t-1", fleet.RoleAdmin, 0)
	make("t-2", fleet.RoleAdmin, time.Hour)
	make("t-3", fleet.RoleOperator, 0)
	g.refused(fleet.Conflict, &CreateToken{Token: fleet.Token{ID: "t-1"}})
	g.do(&RevokeToken{ID: "t-3"})
	g.repeated(&RevokeToken{ID: "t-3"})
	g.now = g.now.Add(2 * time.Hour) // t-2 works no more
	g.refused(fleet.Conflict, &RevokeToken{ID: "t-1"})
	g.do(&RevokeToken{ID: "t-2"})
	make("t-4", fleet.RoleAdmin, 0)
	g.do(&RevokeToken{ID: "t-1"})
	g.refused(fleet.Conflict, &RevokeToken{ID: "t-4"})
	g.refused(fleet.NotFound, &RevokeToken{ID: "t-9"})
	k, ok := g.m.View().TokenByHash(digest("t-4"))
	if !ok || k.ID != "t-4" || !TokenWorks(k, g.now) || len(g.m.View().Tokens()) != 4 {
		t.Errorf("token is %+v", k)
	}
}

// TestAudit: what people did is recorded, what machines did is not, refusals neither.
func TestAudit(t *testing.T) {
	g := newRig(t)
	g.submit("a")
	g.do(&Set{Name: "default_harness", Value: "codex"})
	g.do(&CancelJob{Job: "a", Abandon: true})
	g.refused(fleet.NotFound, &CancelJob{Job: "b"})
	g.actor = "hub"
	g.submit("b")
	g.actor = "runner:r1"
	g.submit("c")
	var got []string
	for _, a := range g.m.View().Audit(0, 10) {
		got = append(got, fmt.Sprintf("%d %s %s %s %s", a.Index, a.Actor, a.Command, a.Subject, a.Detail))
	}
	if s := strings.Join(got, "\n"); s != "3 t-person job.cancel a abandon\n2 t-person setting.set default_harness codex\n1 t-person job.submit a " {
		t.Errorf("audit is\n%s", s)
	}
	if got := g.m.View().Audit(3, 1); len(got) != 1 || got[0].Index != 2 {
		t.Errorf("the record below 3 is %+v", got)
	}
	g.do(&Expire{Limit: 2, AuditAge: 0})
	if got := g.m.View().Audit(0, 10); len(got) != 1 || got[0].Index != 3 {
		t.Errorf("after expiry of two: %+v", got)
	}
	g.actor = "t-person"
	g.do(&Set{Name: "default_harness"})
	if m := g.m.View().Meta(); len(m.Settings) != 0 {
		t.Errorf("settings are %v", m.Settings)
	}
}

// TestExpireJobs deletes what has ended and concerns no runner, and nothing else.
func TestExpireJobs(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("done")
	f := g.run("done", "r1")
	g.do(g.judged("done", f, fleet.Accept))
	g.submit("queued")
	all := &Expire{Jobs: []fleet.JobID{"done", "queued", "nobody"}, Limit: 10, AuditAge: 1000 * time.Hour}
	g.do(all)
	g.job("done") // its log is not sealed yet
	g.do(&SealLog{Job: "done", Fence: f})
	res, changes := g.apply(Head{Actor: "hub"}, all)
	if res.Code != "" || len(changes) != 1 || !changes[0].Removed || changes[0].Job.ID != "done" {
		t.Errorf("expiry gave %+v, %+v", res, changes)
	}
	v := g.m.View()
	if _, ok := v.Job("done"); ok || v.Count("jobs") != 1 {
		t.Errorf("%d jobs are left", v.Count("jobs"))
	}
	g.is("queued", fleet.Queued)
}

// TestTimeNeverRunsBack: an entry of a slow clock leaves state time as it is.
func TestTimeNeverRunsBack(t *testing.T) {
	g := newRig(t)
	g.submit("a")
	was := g.m.View().Meta().Time
	g.now = g.now.Add(-time.Hour)
	g.submit("b")
	if m := g.m.View().Meta(); !m.Time.Equal(was) || !g.job("b").CreatedAt.Equal(was) || m.Index != 2 {
		t.Errorf("meta is %+v, want time %s", m, was)
	}
	res, changes, err := g.m.Apply(2, g.log[0])
	if err != nil || !res.Repeated || changes != nil {
		t.Errorf("an entry that was applied before gave %+v, %v, %v", res, changes, err)
	}
}

// TestViews walks jobs in both directions and by prefix.
func TestViews(t *testing.T) {
	g := newRig(t)
	for _, id := range []fleet.JobID{"aa", "ab", "b", "c"} {
		g.submit(id)
	}
	v := g.m.View()
	walk := func(before fleet.JobID) (s string) {
		v.Jobs(before, func(j *fleet.Job) bool { s += string(j.ID) + " "; return j.ID != "ab" })
		return s
	}
	if got := walk("") + "| " + walk("c"); got != "c b ab | b ab " {
		t.Errorf("newest first: %q", got)
	}
	if got := v.JobsByPrefix("a", 5); len(got) != 2 || got[0].ID != "aa" {
		t.Errorf("by prefix: %v", got)
	}
	if got := v.JobsByPrefix("", 3); len(got) != 3 {
		t.Errorf("any prefix, at most 3: %d", len(got))
	}
	var queue bytes.Buffer
	v.Queue(func(j *fleet.Job) bool { queue.WriteString(string(j.ID)); return true })
	g.do(&CancelJob{Job: "aa"})
	if queue.String() != "aaabbc" || v.Count("queued") != 4 || g.m.View().Count("queued") != 3 {
		t.Errorf("queue is %s", queue.String())
	}
}
