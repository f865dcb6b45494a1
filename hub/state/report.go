package state

import (
	"encoding/json"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

var (
	_ = register(func() Command { return new(RecordFacts) })
	_ = register(func() Command { return new(FinishAttempt) })
	_ = register(func() Command { return new(DecideJob) })
	_ = register(func() Command { return new(SealLog) })
	_ = register(func() Command { return new(UpdateEvidence) })
	_ = register(func() Command { return new(GrantPush) })
	_ = register(func() Command { return new(RecordPush) })
)

// Fact is one small thing that a runner reports of an attempt.
type Fact struct {
	Kind  string          `json:"kind"` // phase, session, model, usage, started, note, detail, responded
	Value json.RawMessage `json:"value"`
	Seq   uint64          `json:"seq,omitempty"` // its runner's number, by which it is recorded once; 0: it has none
}

// RecordFacts records facts of one attempt, numbered ones once. A fact over its bounds
// is refused.
type RecordFacts struct {
	Job   fleet.JobID `json:"job"`
	Fence fleet.Fence `json:"fence"`
	Facts []Fact      `json:"facts"`
	Rules int         `json:"rules,omitempty"`
}

func (*RecordFacts) kind() Kind { return 6 }

func (c *RecordFacts) apply(t *txn) Result {
	j, tu, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	fresh := 0
	for _, f := range c.Facts {
		if !a.Told.Has(f.Seq) {
			fresh++
		}
	}
	switch {
	case fresh == 0 && len(c.Facts) > 0:
		return Result{ID: string(j.ID), Repeated: true, Job: j}
	case a.Facts+fresh > fleet.MaxFacts:
		return refuse(fleet.TooLarge, "attempt %s has %d facts, at most %d", c.Fence, a.Facts, fleet.MaxFacts)
	}
	for _, f := range c.Facts {
		if a.Told.Has(f.Seq) {
			continue // it was recorded, and the answer did not reach its runner
		}
		if len(f.Value) > fleet.MaxFact {
			return refuse(fleet.TooLarge, "fact %s of %d bytes, at most %d", f.Kind, len(f.Value), fleet.MaxFact)
		}
		if f.Kind == "responded" {
			if c.Rules > 0 && !a.Responded {
				t.responded(j, tu, a)
				a.Responded = true
			}
		} else if err := t.fact(j, a, f, c.Rules); err != nil {
			return refuse(fleet.BadRequest, "fact %s: %v", f.Kind, err)
		}
		a.Facts++
		a.Told = a.Told.With(f.Seq)
	}
	return t.put(j)
}

// running tells what a running attempt says of itself, and since when. That it waits on
// its model's provider is a reason of its own, unless the job is being cancelled.
func (t *txn) running(j *fleet.Job, detail, runner string, rules int) {
	code := "running"
	if strings.HasPrefix(detail, fleet.WaitingOnProvider) {
		code = "waiting_on_provider"
	}
	detail = orElse(detail, "on "+runner)
	switch was := j.Reason.Code; {
	case was != code && (was == "running" || was == "waiting_on_provider"):
		j.Reason.Code, j.Reason.Since = code, t.now()
	case rules > 0 && code == "running" && was == code && j.Reason.Detail != detail:
		j.Reason.Since = t.now()
	}
	j.Reason.Detail = detail
}

func (t *txn) fact(j *fleet.Job, a *fleet.Attempt, f Fact, rules int) error {
	if a.State == fleet.AttemptFinished && (f.Kind == "phase" || f.Kind == "detail") {
		return nil // the result says more
	}
	switch f.Kind {
	case "phase":
		if err := json.Unmarshal(f.Value, &a.Phase); err != nil {
			return err
		}
		a.PhaseAt = t.now()
		if a.Phase == "preparing" && j.State == fleet.Assigned && a == pending(j.Turn()) {
			t.become(j, fleet.Preparing, "preparing", "on %s", a.RunnerName)
		}
	case "detail":
		var s string
		if err := json.Unmarshal(f.Value, &s); err != nil {
			return err
		}
		a.Detail = s
		if j.State == fleet.Running && j.Current() == a {
			t.running(j, s, a.RunnerName, rules)
		}
	case "session":
		return json.Unmarshal(f.Value, &a.SessionID)
	case "model":
		return json.Unmarshal(f.Value, &a.Model)
	case "usage":
		var u fleet.Usage
		if err := json.Unmarshal(f.Value, &u); err != nil {
			return err
		}
		a.Usage = &u
	case "started":
		var s time.Time
		if err := json.Unmarshal(f.Value, &s); err != nil {
			return err
		}
		a.StartedAt = &s
	case "note":
		var s string
		if err := json.Unmarshal(f.Value, &s); err != nil {
			return err
		}
		a.Notes = append(a.Notes[:len(a.Notes):len(a.Notes)], s)
	}
	return nil // a kind of a newer runner: counted, not kept
}

// FinishAttempt records how an accepted attempt ended. It always settles the
// attempt; it settles the job only while the attempt is the current one. A verdict
// may ride along where nothing has to be checked first.
type FinishAttempt struct {
	Job        fleet.JobID        `json:"job"`
	Fence      fleet.Fence        `json:"fence"`
	Exit       fleet.Exit         `json:"exit"`
	Class      fleet.FailureClass `json:"class"`
	Detail     string             `json:"detail,omitempty"`
	ResetAt    *time.Time         `json:"reset_at,omitempty"`
	SessionID  string             `json:"session_id,omitempty"`
	Model      string             `json:"model,omitempty"`
	Usage      *fleet.Usage       `json:"usage,omitempty"`
	StartedAt  time.Time          `json:"started_at,omitzero"`
	FinishedAt time.Time          `json:"finished_at"`
	Output     int64              `json:"output"`
	Text       int64              `json:"text,omitempty"` // of the output, without framing
	Events     int64              `json:"events"`
	Dropped    int64              `json:"dropped,omitempty"`
	Evidence   *fleet.Evidence    `json:"evidence,omitempty"`
	Verdict    *fleet.Verdict     `json:"verdict,omitempty"`
	Rules      int                `json:"rules,omitempty"`
	RetryAfter time.Duration      `json:"retry_after_ns,omitempty"` // that the provider stated
	StatedEnd  string             `json:"stated_end,omitempty"`     // the words in which it stated an end of its limit
	Acted      bool               `json:"acted,omitempty"`          // a tool of the agent ran
	Account    string             `json:"account,omitempty"`        // mark of the account that it was signed in with
	Footprint  int64              `json:"footprint,omitempty"`      // bytes that its worktree came to take
}

func (*FinishAttempt) kind() Kind { return 7 }

func (c *FinishAttempt) apply(t *txn) Result {
	j, tu, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	switch {
	case a.State == fleet.AttemptFinished:
		return Result{ID: string(j.ID), Repeated: true, Job: j}
	case MayRegain(j, tu, a):
		t.regain(j, tu, a) // only what was permitted to start has a result
		if c.Rules > 0 {
			t.put(j) // so that budgets see it begin
			j = j.Clone()
			tu, a = j.Find(c.Fence)
		}
	case a.State == fleet.AttemptReturned && a.Stop == StopEpoch:
		a.AcceptedAt = at(t.now()) // the same, and another one was accepted since
	case a.AcceptedAt == nil:
		return refuse(fleet.StaleFence, "attempt %s of job %s was never accepted", c.Fence, c.Job)
	}
	abandoned := a.State == fleet.AttemptAbandoned
	a.State, a.Gone = fleet.AttemptFinished, true
	a.Exit, a.Failure, a.Detail, a.ResetAt = &c.Exit, c.Class, c.Detail, c.ResetAt
	a.SessionID, a.Model = orElse(c.SessionID, a.SessionID), orElse(c.Model, a.Model)
	if c.Usage != nil {
		a.Usage = c.Usage
	}
	if !c.StartedAt.IsZero() {
		a.StartedAt = &c.StartedAt
	}
	a.FinishedAt, a.Phase, a.PhaseAt = &c.FinishedAt, "finished", t.now()
	a.Log.Bytes, a.Log.Text, a.Log.Events, a.Log.Dropped = c.Output, c.Text, c.Events, c.Dropped
	a.Evidence = c.Evidence
	if a.Evidence != nil && a.Evidence.CommitCount > 0 {
		j.Pulled = false // these commits are nowhere else yet
	}
	if c.Rules > 0 {
		t.learn(c, j, tu, a)
	}
	if abandoned || tu != j.Turn() || tu.Current != a.N || j.State == fleet.Cancelled {
		return t.put(j) // kept on the attempt; the job belongs to another
	}
	withdraw(tu, "the lost attempt came back with its result")
	switch {
	case j.CancelRequestedAt != nil && c.Exit.Reason == "stopped":
		what := "stopped on request"
		if j.CancelWhy != "" {
			what = because("stopped", j.CancelWhy)
		}
		t.become(j, fleet.Cancelled, "cancelled", "%s", what)
		t.ended(j)
	case c.Rules > 0 && (c.Verdict == nil || c.Verdict.Decision != fleet.Accept) && t.goOn(j, tu, a):
	case c.Verdict != nil:
		t.judge(j, *c.Verdict)
	default:
		t.become(j, fleet.Verifying, "verifying", "evidence is being checked")
	}
	return t.put(j)
}

// DecideJob settles the newest turn by a verdict over the evidence of its current attempt.
type DecideJob struct {
	Job      fleet.JobID     `json:"job"`
	Fence    fleet.Fence     `json:"fence"`
	Verdict  fleet.Verdict   `json:"verdict"`
	Evidence *fleet.Evidence `json:"evidence,omitempty"` // as completed by the hub's own checks
}

func (*DecideJob) kind() Kind { return 8 }

func (c *DecideJob) apply(t *txn) Result {
	j, tu, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	if tu != j.Turn() || tu.Current != a.N || j.State != fleet.Verifying && j.State != fleet.NeedsReview {
		return refuse(fleet.NotCurrent, "job %s is not waiting for a verdict on attempt %s", c.Job, c.Fence)
	}
	if c.Evidence != nil {
		if !sameWork(a.Evidence, c.Evidence) {
			return refuse(fleet.Conflict, "the evidence of attempt %s of job %s changed while it was judged; judge it again", c.Fence, c.Job)
		}
		e := *a.Evidence
		e.BundleChecked, e.BundleError = c.Evidence.BundleChecked, c.Evidence.BundleError
		a.Evidence = &e
	}
	if j.State == fleet.NeedsReview && c.Verdict.State() == fleet.NeedsReview {
		return t.put(j) // no news
	}
	t.judge(j, c.Verdict)
	return t.put(j)
}

// sameWork says whether two records of evidence are about the same commits.
func sameWork(a, b *fleet.Evidence) bool {
	return a != nil && b != nil && a.Base == b.Base && a.Tip == b.Tip && a.CommitCount == b.CommitCount && a.Bundle == b.Bundle
}

// judge moves the newest turn to where a verdict leads.
func (t *txn) judge(j *fleet.Job, v fleet.Verdict) {
	j.Turn().Verdict = &v
	reason := "no reason given"
	if len(v.Reasons) > 0 {
		reason = v.Reasons[0]
	}
	code := string(v.Decision)
	if a := j.Current(); a != nil && a.Failure == fleet.ClassStalled && v.Decision == fleet.Reject {
		code = "stalled"
	}
	t.become(j, v.State(), code, "%s", reason)
	t.ended(j)
}

// SealLog records that the hub holds every byte of an attempt's streams.
type SealLog struct {
	Job    fleet.JobID `json:"job"`
	Fence  fleet.Fence `json:"fence"`
	Output int64       `json:"output"`
	Events int64       `json:"events"`
}

func (*SealLog) kind() Kind { return 9 }

func (c *SealLog) apply(t *txn) Result {
	j, _, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	if a.Log.Sealed {
		return Result{ID: string(j.ID), Repeated: true, Job: j}
	}
	if a.State == fleet.AttemptAssigned || a.State == fleet.AttemptRunning {
		return refuse(fleet.Conflict, "attempt %s of job %s is %s; a log is sealed after the end", c.Fence, c.Job, a.State)
	}
	a.Log.Bytes, a.Log.Durable, a.Log.Events, a.Log.Sealed = c.Output, c.Output, c.Events, true
	return t.put(j)
}

// UpdateEvidence replaces the evidence of a finished attempt after artifacts came late.
type UpdateEvidence struct {
	Job      fleet.JobID     `json:"job"`
	Fence    fleet.Fence     `json:"fence"`
	Evidence *fleet.Evidence `json:"evidence"`
}

func (*UpdateEvidence) kind() Kind { return 10 }

func (c *UpdateEvidence) apply(t *txn) Result {
	j, _, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	if a.State != fleet.AttemptFinished {
		return refuse(fleet.Conflict, "attempt %s of job %s has not finished", c.Fence, c.Job)
	}
	if c.Evidence == nil {
		return refuse(fleet.BadRequest, "evidence without content")
	}
	e := *c.Evidence
	if was := a.Evidence; was != nil && was.BundleChecked {
		if !sameWork(was, &e) {
			return refuse(fleet.Conflict, "the commits of attempt %s of job %s were checked already; its evidence cannot name others", c.Fence, c.Job)
		}
		e.BundleChecked, e.BundleError = true, ""
	}
	a.Evidence = &e
	return t.put(j)
}

// GrantPush permits the current attempt, and nobody else, to push one commit to
// one ref. Without a commit it permits the attempt's own agent to ask for
// credentials of the remote, while it runs.
type GrantPush struct {
	Job    fleet.JobID `json:"job"`
	Fence  fleet.Fence `json:"fence"`
	Remote string      `json:"remote"`
	Ref    string      `json:"ref,omitempty"`
	SHA    string      `json:"sha,omitempty"`
}

func (*GrantPush) kind() Kind { return 11 }

func (c *GrantPush) apply(t *txn) Result {
	j, tu, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	if no := c.Refused(t.meta.Epoch, j, tu, a); no.Code != "" {
		return no
	}
	for _, p := range a.Pushes {
		if p.Remote == c.Remote && p.Ref == c.Ref && p.SHA == c.SHA {
			return Result{ID: string(j.ID), Repeated: true, Job: j}
		}
	}
	if len(a.Pushes) >= MaxPushes {
		return refuse(fleet.TooLarge, "attempt %s has been granted %d pushes, the bound", c.Fence, MaxPushes)
	}
	a.Pushes = append(a.Pushes[:len(a.Pushes):len(a.Pushes)], fleet.Push{Remote: c.Remote, Ref: c.Ref, SHA: c.SHA, At: t.now()})
	return t.put(j)
}

// Refused gives the refusal of a push that the record of its job already shows, in a
// given epoch of the cluster; one without a code says that there is none. While a
// verdict may still fall, or the attempt be renewed, the code is Unavailable or, where
// a person has to give the verdict, NotDecided; any other is final.
func (c *GrantPush) Refused(epoch uint64, j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) Result {
	switch {
	case MayRegain(j, tu, a):
		return refuse(fleet.Unavailable, "attempt %s of job %s was given in an epoch before %d and is not renewed yet; ask again", c.Fence, c.Job, epoch)
	case tu != j.Turn() || tu.Current != a.N:
		return refuse(fleet.StaleFence, "attempt %s of job %s is not the current one; its push is refused", c.Fence, c.Job)
	case a.Stop != "" || j.CancelRequestedAt != nil:
		return refuse(fleet.CancelRequested, "job %s was asked to stop; its work is kept and not pushed", c.Job)
	case a.Authority() < epoch:
		return refuse(fleet.Unavailable, "attempt %s of job %s was authorised in epoch %d and is not renewed in epoch %d yet; ask again", c.Fence, c.Job, a.Authority(), epoch)
	case c.SHA == "" && j.State != fleet.Running:
		return refuse(fleet.Conflict, "job %s is %s; credentials are given only while it runs", c.Job, j.State)
	case c.SHA == "" || j.State == fleet.Succeeded:
	case j.State == fleet.NeedsReview:
		return refuse(fleet.NotDecided, "job %s needs review; its work is pushed once a person accepts it", c.Job)
	case j.State.Ended() && j.State != fleet.Lost:
		return refuse(fleet.Conflict, "job %s is %s; only the work of a succeeded turn is pushed", c.Job, j.State)
	default:
		return refuse(fleet.Unavailable, "job %s is %s and there is no verdict yet; ask again", c.Job, j.State)
	}
	if c.SHA != "" && a.Evidence != nil && a.Evidence.Tip != "" && c.SHA != a.Evidence.Tip {
		return refuse(fleet.Conflict, "%s is not the commit that was verified for job %s, which is %s", c.SHA, c.Job, a.Evidence.Tip)
	}
	return Result{}
}

// RecordPush records what became of a permitted push, or why there was no permit.
type RecordPush struct {
	Job    fleet.JobID `json:"job"`
	Fence  fleet.Fence `json:"fence"`
	Ref    string      `json:"ref"`
	SHA    string      `json:"sha"`
	Result string      `json:"result"`
}

func (*RecordPush) kind() Kind { return 12 }

func (c *RecordPush) apply(t *txn) Result {
	j, _, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	pushes := append([]fleet.Push(nil), a.Pushes...)
	for i := range pushes {
		if pushes[i].Ref == c.Ref && pushes[i].SHA == c.SHA {
			pushes[i].Result = c.Result
			a.Pushes = pushes
			if c.Result == "pushed" {
				j.Pulled = true
			}
			return t.put(j)
		}
	}
	if c.Result != "" && c.Result != "pushed" && a.State == fleet.AttemptFinished && len(pushes) < MaxPushes {
		// No permit was given, and whoever waits for the push is to hear of it.
		a.Pushes = append(pushes, fleet.Push{Ref: c.Ref, SHA: c.SHA, At: t.now(), Result: c.Result})
		return t.put(j)
	}
	return refuse(fleet.NotFound, "job %s has no permit for %s at %s", c.Job, c.Ref, c.SHA)
}
