package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// rest has all work end, and then sees that everything is everywhere.
func (w *world) rest(ctx context.Context) error {
	if err := w.within(ctx, calmTime, "all hubs are there", func() bool { return len(w.look(false)) == hubCount || w.broken() }); err != nil {
		return err
	}
	if err := w.explained(ctx); err != nil {
		return err
	}
	var open []string
	p, r, again := newPerson(w, "p-founder"), w.rand(10), time.Time{}
	long := calmTime
	if w.patient() {
		long = longTime
	}
	err := w.within(ctx, long, "all work ends", func() bool {
		if time.Since(again) > 20*time.Second {
			again = time.Now()
			w.debug("heal: %v", w.heal(ctx, p, r))
		}
		nodes := w.look(false)
		open = w.open(nodes)
		return len(open) == 0 || w.broken()
	})
	if w.broken() {
		return w.verdict()
	}
	if err != nil {
		return fmt.Errorf("%w: %v%s", err, open, w.why(ctx, p))
	}
	var apart error
	err = w.within(ctx, quietTime, "all nodes are equal", func() bool {
		nodes := w.look(false)
		if apart = w.equal(nodes); apart == nil {
			nodes = w.look(true)
			w.final(nodes)
			return true
		}
		return w.broken()
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, apart)
	}
	if err := w.people.history.linear(); err != nil {
		w.wrong("%v", err)
	}
	return w.verdict()
}

// open lists the jobs that have not come to rest.
func (w *world) open(nodes []look) (out []string) {
	if len(nodes) < hubCount {
		return []string{"a hub is down"}
	}
	for _, j := range nodes[0].jobs {
		if !j.State.Ended() {
			out = append(out, fmt.Sprintf("%s is %s (%s: %s)", j.ID, j.State, j.Reason.Code, j.Reason.Detail))
			continue
		}
		for _, t := range j.Turns {
			for _, a := range t.Attempts {
				// Who emptied its disk after it had told the end has no bytes any more to seal.
				if a.State == fleet.AttemptFinished && !a.Log.Sealed && a.AssignedAt.After(w.lost(a.Runner)) {
					out = append(out, fmt.Sprintf("%s: the log of %s is not sealed", j.ID, a.Fence))
				}
			}
		}
	}
	return out
}

// equal says what the nodes do not have in common yet.
func (w *world) equal(nodes []look) error {
	if len(nodes) < hubCount {
		return errors.New("a hub is down")
	}
	for _, n := range nodes[1:] {
		if err := same(nodes[0], n); err != nil {
			return err
		}
	}
	if err := w.equalSums(nodes); err != nil {
		return err
	}
	for _, n := range nodes {
		have := map[stream]copied{}
		for _, s := range n.streams {
			have[s.stream] = s
		}
		for _, j := range n.jobs {
			for _, t := range j.Turns {
				for _, a := range t.Attempts {
					k := stream{j.ID, a.Fence, "output"}
					if a.Log.Sealed && have[k].size < a.Log.Bytes {
						return fmt.Errorf("%s has %d of %d bytes of the output of %s of job %s", n.node, have[k].size, a.Log.Bytes, a.Fence, j.ID)
					}
					for _, f := range artifacts(a) {
						if !n.blob(f.Digest) {
							return fmt.Errorf("%s lacks %s of job %s", n.node, f.Name, j.ID)
						}
					}
				}
			}
		}
	}
	return nil
}

// why tells what the hubs say of the jobs that wait.
func (w *world) why(ctx context.Context, p *person) string {
	text := ""
	for _, j := range w.look(false)[0].jobs {
		if j.State == fleet.Queued {
			var e api.Explanation
			err := p.call(ctx, http.MethodGet, "/v1/jobs/"+string(j.ID)+"/explain", "", nil, &e)
			text += fmt.Sprintf("\n%s %+v: %v %s %+v", j.ID, j.Spec, err, e.Summary, e.Runners)
		}
	}
	return text
}

// equalSums: where the nodes are at the same command, so is all of their state, and it is
// what one command after the other comes to.
func (w *world) equalSums(nodes []look) error {
	w.court.mu.Lock()
	defer w.court.mu.Unlock()
	for _, n := range nodes {
		if n.index != w.court.last {
			return fmt.Errorf("%s is at command %d of %d", n.node, n.index, w.court.last)
		}
	}
	want, err := sum(w.court)
	if err != nil {
		return err
	}
	for _, n := range w.hubs.nodes {
		switch got, err := sum(n.fsm); {
		case err != nil:
			return err
		case got != want:
			w.wrong("the state of %s at command %d is not that of the commands", n.id, w.court.last)
		}
	}
	return nil
}

func artifacts(a *fleet.Attempt) []fleet.Artifact {
	if a.Evidence == nil {
		return nil
	}
	return a.Evidence.Artifacts
}

// final is what is owed at the end, beyond what must be so at every moment.
func (w *world) final(nodes []look) {
	l := w.ledger
	for _, n := range nodes {
		attempts := map[fleet.Fence]*fleet.Attempt{}
		for _, j := range n.jobs {
			for _, t := range j.Turns {
				for _, a := range t.Attempts {
					attempts[a.Fence] = a
				}
			}
		}
		for f, job := range l.accepted {
			if a := attempts[f]; a == nil || a.AcceptedAt == nil {
				w.wrong("%s does not know that attempt %s of job %s was accepted", n.node, f, job)
			}
		}
		for f, job := range l.finished {
			if a := attempts[f]; a == nil || a.State != fleet.AttemptFinished {
				w.wrong("%s does not know that attempt %s of job %s finished", n.node, f, job)
			}
		}
		for f, notes := range l.notes {
			a := attempts[f]
			if a == nil || len(a.Notes) < len(notes) {
				w.wrong("%s lacks notes of attempt %s, which has %v", n.node, f, notes)
			}
		}
		for job, runs := range l.runs {
			for _, x := range runs {
				if a := attempts[x.fence]; a == nil || a.AcceptedAt == nil {
					w.wrong("attempt %s of job %s ran without a permit", x.fence, job)
				}
			}
		}
	}
}
