package session

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"tugline.dev/tugline/hub/retry"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// reply gives the body of a heartbeat's answer: the whole desired set of the runner.
func (x *session) reply(v state.View, open []state.Open, views []wire.AttemptView, interval time.Duration) ([]byte, error) {
	s := x.srv
	st := s.cfg.Standing()
	keys := s.cfg.Keys() // one value: no order is signed by a key that the news do not lead to
	rep := wire.HeartbeatReply{
		Interval: interval, Epoch: st.Epoch, Term: st.Term, Index: min(st.Index, v.Meta().Index),
		Time: s.cfg.Now().UTC(), Leader: s.cfg.Leader(),
	}
	if r, ok := v.Runner(x.runner); ok {
		rep.Keys, rep.Limits, rep.Update = x.news(keys, r), x.limits(v, r), s.offer(keys, v, r)
		rep.Provision = s.install(keys, v, r)
	}
	rep.Hubs, rep.Mesh = x.hubNews(), x.tunnels(v)
	if es := s.cfg.Errands(x.runner); len(es) > 0 {
		rep.Errands = es[:min(len(es), wire.MaxErrands)]
	}
	shown := make(map[fleet.Fence]string, len(views)) // the phase
	for _, w := range views {
		shown[w.Fence] = w.Phase
	}
	listed := make(map[fleet.Fence]bool, len(open))
	room := maxReply
	for _, o := range open {
		listed[o.Attempt.Fence] = true
		rep.Desired = x.want(rep.Desired, o, shown[o.Attempt.Fence], keys, &room)
	}
	// What the runner shows beyond that is looked up. A job or attempt that the
	// state does not know is left out, which tells the runner to keep it, until all
	// there is of it is on record as an orphan.
	for _, w := range views {
		if listed[w.Fence] {
			continue
		}
		j, tu, a, err := x.own(v, w.Job, w.Fence)
		if err != nil {
			if x.orphanDone(v, w.Job, w.Fence) {
				rep.Desired = append(rep.Desired, wire.Desired{Job: w.Job, Fence: w.Fence, Intent: wire.IntentForget})
			}
			continue
		}
		listed[w.Fence] = true
		rep.Desired = x.want(rep.Desired, state.Open{Job: j, Turn: tu, Attempt: a}, w.Phase, keys, &room)
	}
	return wire.Encode(rep)
}

// want adds the line of one attempt. An order that finds no room, or cannot be made
// now, is left out of its line and comes with the next beat.
func (x *session) want(set []wire.Desired, o state.Open, phase string, keys *Keys, room *int) []wire.Desired {
	a, epoch := o.Attempt, x.srv.cfg.Standing().Epoch
	intent, reason := state.Want(o.Job, o.Turn, a)
	renew := renewed(epoch, o, phase)
	if renew && state.MayRegain(o.Job, o.Turn, a) {
		intent, reason = "run", ""
	}
	if intent == "" {
		return set
	}
	d := wire.Desired{Job: o.Job.ID, Fence: a.Fence, Intent: wire.Intent(intent), Reason: reason, Accepted: a.AcceptedAt != nil}
	var kind string
	var body any
	var critical []string
	switch {
	case d.Intent == wire.IntentStop:
		kind, body = wire.OrderStop, wire.Stop{Reason: reason}
	case renew:
		kind, body, critical, reason = wire.OrderRenew, wire.Renew{Epoch: epoch}, []string{"epoch"}, strconv.FormatUint(epoch, 10)
	case d.Intent == wire.IntentRun && a.State == fleet.AttemptAssigned && phase == "":
		as := x.srv.assignment(o)
		kind, body, critical = wire.OrderAssign, as, wire.Critical(as)
	default:
		return append(set, d)
	}
	signed, raw, err := x.srv.order(keys, kind, x.runner, o.Job.ID, a.Fence, reason, body, critical)
	if err != nil {
		x.srv.cfg.Logger.Error("sign order", "runner", x.runner, "job", o.Job.ID, "fence", a.Fence.String(), "err", err)
		return append(set, d)
	}
	if n := len(raw) + len(signed.Order); n*4/3 <= *room {
		*room -= n * 4 / 3
		d.Order, d.Body = &signed, raw
	}
	return append(set, d)
}

// order signs one instruction. Its id is made of what it says, so that a repeated
// order is the same order to the runner's journal.
func (s *Server) order(keys *Keys, kind string, r fleet.RunnerID, j fleet.JobID, f fleet.Fence, reason string, body any, critical []string) (wire.Signed, []byte, error) {
	id := kind + "/" + string(j) + "/" + f.String()
	if reason != "" {
		id += "/" + reason
	}
	return s.signed(keys, wire.Order{Runner: r, Job: j, Fence: f, ID: id, Kind: kind, Critical: critical}, body)
}

// signed completes an order and signs it.
func (s *Server) signed(keys *Keys, o wire.Order, body any) (wire.Signed, []byte, error) {
	raw, err := wire.Encode(body)
	if err != nil {
		return wire.Signed{}, nil, fmt.Errorf("encode body: %w", err)
	}
	o.Cluster, o.Epoch, o.Body, o.NotAfter = keys.Cluster, s.cfg.Standing().Epoch, wire.BodyDigest(raw), s.cfg.Now().Add(s.cfg.OrderLife).UTC()
	signed, err := wire.SignOrder(keys.Signing, keys.SigningID, o)
	return signed, raw, err
}

// assignment gives all that a runner needs to know about an attempt. Of the job's
// choices it names the one that the attempt is to be made with, and no other.
func (s *Server) assignment(o state.Open) wire.Assignment {
	j, t, a := o.Job, o.Turn, o.Attempt
	from, again := resume(j, t, a)
	as := wire.Assignment{
		Job: j.ID, Turn: t.N, Attempt: a.N, Fence: a.Fence, Spec: j.Spec, Prompt: t.Prompt, PromptText: s.prompt(t.Prompt), Model: t.Model,
		Fresh: t.Fresh, Resume: from, CreatedAt: j.CreatedAt, Again: again, Reserve: a.Reserve,
		Docker: j.Learned != nil && j.Learned.Docker || j.Spec.Needs != nil && j.Spec.Needs.Docker,
	}
	switch {
	case j.Spec.Kind == fleet.KindAgent && a.Harness != "":
		as.Spec.Harness, as.Spec.Model, as.Model = a.Harness, a.Requested, a.Requested
	case as.Model == "":
		as.Model = j.Spec.Model
	}
	as.Spec.Fallbacks = nil
	if again && from != nil && from.SessionID != "" {
		as.Fresh = false // the session is the turn's own
	}
	if j.Spec.Repo != nil {
		as.Branch = j.Spec.Repo.Branch
		if as.Branch == "" {
			as.Branch = "tugline/" + string(j.ID)
		}
	}
	return as
}

// prompt gives the text of a small prompt, to save its runner a fetch; empty where
// it is large, not text, or cannot be read now.
func (s *Server) prompt(d fleet.Digest) string {
	if d == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), promptTime)
	defer cancel()
	r, size, err := s.cfg.Blobs.Open(ctx, d)
	if err != nil {
		return ""
	}
	defer r.Close()
	if size > maxPromptText {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(r, maxPromptText+1))
	if err != nil || int64(len(b)) != size || !utf8.Valid(b) {
		return ""
	}
	return string(b)
}

// resume gathers what the attempt goes on from: the job's first base and, of the
// turns before this one, the last commits and the last CLI session that this runner
// and this harness hold. A turn that is tried again keeps only its base, unless the last
// attempt at it was on this runner and ended by no doing of its own: then its worktree
// is gone on with, and its session, if there is anything in it.
func resume(j *fleet.Job, now *fleet.Turn, at *fleet.Attempt) (from *wire.Resume, again bool) {
	var r wire.Resume
	harness := func(a *fleet.Attempt) string { return cmp.Or(a.Harness, j.Spec.Harness) }
	session := func(a *fleet.Attempt) {
		if a.SessionID != r.SessionID {
			r.SessionID, r.Usage = a.SessionID, nil
		}
		if a.Usage != nil {
			sum := *a.Usage
			if r.Usage != nil {
				sum = sum.Add(*r.Usage)
			}
			r.Usage = &sum
		}
	}
	for _, t := range j.Turns {
		for _, a := range t.Attempts {
			if a == at {
				if r == (wire.Resume{}) {
					return nil, again
				}
				return &r, again
			}
			if r.BaseCommit == "" {
				r.BaseCommit = base(a)
			}
			here := a.Runner == at.Runner
			held := here && a.SessionID != "" && harness(a) == harness(at)
			if t.N == now.N {
				goesOn := here && retry.GoesOn(a)
				if a.AcceptedAt != nil {
					again = goesOn
				}
				if !goesOn {
					continue
				}
				held = held && retry.Resumes(a)
			} else {
				held = held && !now.Fresh
			}
			// A tip without a bundle is one that is the base: there were no commits.
			if e := a.Evidence; e != nil && (e.Bundle != "" || e.CommitCount == 0 && e.Tip != "" && r.Bundle == "") {
				r.Bundle, r.Tip = e.Bundle, e.Tip
			}
			if held {
				session(a)
			}
		}
	}
	return nil, false
}

func base(a *fleet.Attempt) string {
	if a.BaseCommit != "" {
		return a.BaseCommit
	}
	if a.Evidence != nil {
		return a.Evidence.Base
	}
	return ""
}
