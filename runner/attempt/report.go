package attempt

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
)

// The kinds of items that attempts put into the outbox. The body of each is the JSON
// of the type named after it; gone has none.
const (
	KindAccepted = "accepted"
	KindDeclined = "declined"
	KindFacts    = "facts" // []Fact
	KindFinished = "finished"
	KindLost     = "lost"
	KindGone     = "gone"
	KindSealed   = "sealed"
	KindPushed   = "pushed"
	KindRenewed  = "renewed"
)

// Accepted asks for the permit to start.
type Accepted struct {
	Permissions fleet.Permissions `json:"permissions"`
	BaseCommit  string            `json:"base_commit,omitempty"`
	Notes       []string          `json:"notes,omitempty"`
}

// Declined gives an assignment back.
type Declined struct {
	Code       fleet.Code    `json:"code"`
	Detail     string        `json:"detail"`
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
	Block      bool          `json:"block,omitempty"`
}

// Fact is one small thing that happened.
type Fact struct {
	Seq   uint64          `json:"seq"`
	Kind  string          `json:"kind"`
	At    time.Time       `json:"at"`
	Value json.RawMessage `json:"value"`
}

// Finished is the end of an attempt, not signed yet.
type Finished struct {
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
	Text       int64              `json:"text,omitempty"`
	Events     int64              `json:"events"`
	Dropped    int64              `json:"dropped,omitempty"`
	Evidence   *fleet.Evidence    `json:"evidence,omitempty"`
	RetryAfter time.Duration      `json:"retry_after_ns,omitempty"`
	StatedEnd  string             `json:"stated_end,omitempty"`
	Acted      bool               `json:"acted,omitempty"`
	Account    string             `json:"account,omitempty"`
	Footprint  int64              `json:"footprint,omitempty"`
}

// Lost says that the attempt ran and nobody knows how it ended.
type Lost struct {
	Detail string `json:"detail"`
}

// Sealed gives the final lengths of the streams, all of which the hub holds.
type Sealed struct {
	Output int64 `json:"output"`
	Events int64 `json:"events"`
}

// Pushed tells the result of a permitted push.
type Pushed struct {
	Ref    string `json:"ref"`
	SHA    string `json:"sha"`
	Result string `json:"result"`
}

// Renewed says that the attempt goes on in a later epoch of the cluster.
type Renewed struct {
	Epoch     uint64 `json:"epoch"`
	Permitted bool   `json:"permitted"`
}

func (a *Attempt) item(kind string, body any) (journal.Item, error) {
	it := journal.Item{Job: a.asg.Job, Fence: a.asg.Fence, Kind: kind}
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return it, fmt.Errorf("encode %s: %w", kind, err)
		}
		it.Body = b
	}
	return it, nil
}

// put changes the attempt's record and adds one item, in one step; it waits for room
// on the disk.
func (a *Attempt) put(ctx context.Context, d journal.Durability, kind string, body any, change func(*journal.Progress)) error {
	it, err := a.item(kind, body)
	if err != nil {
		return err
	}
	return a.record(ctx, d, change, it)
}

// fact tells one thing that happened. The first MaxFacts of an attempt are told; what
// is beyond is in the streams.
func (a *Attempt) fact(kind string, value any) {
	a.factWith(kind, value, func(*journal.Progress) {})
}

// factWith tells a fact and changes the attempt's record in one step.
func (a *Attempt) factWith(kind string, value any, change func(*journal.Progress)) {
	b, err := json.Marshal(value)
	if err != nil || len(b) > fleet.MaxFact {
		return
	}
	a.factMu.Lock()
	defer a.factMu.Unlock()
	rec, ok := a.host.Journal.Attempt(a.asg.Fence)
	if !ok || rec.Progress.Facts >= fleet.MaxFacts {
		return
	}
	seq := rec.Progress.Facts + 1
	it, err := a.item(KindFacts, []Fact{{Seq: seq, Kind: kind, At: time.Now().UTC(), Value: b}})
	if err == nil {
		err = a.host.Journal.Update(a.asg.Fence, journal.Lazy, func(p *journal.Progress) { p.Facts = max(p.Facts, seq); change(p) }, it)
	}
	if err != nil {
		a.log.Warn("fact could not be journaled", "err", err)
	}
}

// lost reports that nobody knows how the attempt ended, and that nothing of it is
// left here.
func (a *Attempt) lost(ctx context.Context, detail string) error {
	lost, err := a.item(KindLost, Lost{Detail: fleet.CutText(detail, fleet.MaxDetail)})
	if err != nil {
		return err
	}
	gone, err := a.item(KindGone, nil)
	if err != nil {
		return err
	}
	a.ended()
	return a.record(ctx, journal.Durable, func(p *journal.Progress) { p.Ended = true }, lost, gone)
}

// end reports an end without a result and waits for its acknowledgement.
func (a *Attempt) end(ctx context.Context, kind string, body any) error {
	a.ended()
	if err := a.put(ctx, journal.Durable, kind, body, func(p *journal.Progress) { p.Ended = true }); err != nil {
		return err
	}
	return a.settleEnd(ctx)
}

// settleEnd waits until the hub knows the end, then drops every record: nothing that
// could be asked for again is left of such an attempt.
func (a *Attempt) settleEnd(ctx context.Context) error {
	a.enter(Ended, "gone", "")
	if !a.settled(ctx) {
		return nil
	}
	a.erase()
	return a.drop(ctx)
}

// settled waits until the outbox holds nothing of the attempt; false is the end of ctx.
func (a *Attempt) settled(ctx context.Context) bool {
	for a.host.Journal.PendingOf(a.asg.Fence) {
		select {
		case <-a.settle:
		case <-a.gap:
			if a.resend != nil {
				a.resend(ctx)
			}
		case <-ctx.Done():
			return false
		}
	}
	return true
}
