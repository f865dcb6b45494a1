package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// cut seals the log of an attempt that has ended and of which its runner has nothing any
// more, as after the loss of its disk: what the hub holds is all there will ever be. If
// that is less than the runner had recorded, a note on the attempt says so first.
func (x *session) cut(ctx context.Context, a *fleet.Attempt, it *wire.ReportItem) error {
	var held wire.Sealed
	for name, n := range map[wire.Stream]*int64{wire.StreamOutput: &held.Output, wire.StreamEvents: &held.Events} {
		var err error
		if *n, err = x.srv.cfg.Spool.Held(ctx, streamKey(it.Job, it.Fence, name)); err != nil {
			return fmt.Errorf("find out what is held of %s of job %s: %w", name, it.Job, err)
		}
	}
	if (held.Output < a.Log.Bytes || held.Events < a.Log.Events) && fleet.CutNote(a.Notes) == "" {
		note, err := json.Marshal(fmt.Sprintf("%s: its runner lost the rest before it was sent; the hub has %d of %d bytes of output and %d of %d of events",
			fleet.LogCut, held.Output, a.Log.Bytes, held.Events, a.Log.Events))
		if err != nil {
			return err
		}
		err = x.srv.propose(ctx, &state.RecordFacts{Job: it.Job, Fence: it.Fence, Facts: []state.Fact{{Kind: "note", Value: note}}})
		if err != nil && !errors.Is(err, fleet.TooLarge) { // the attempt has all the facts that it may have
			return err
		}
	}
	x.srv.cfg.Logger.Warn("a log is sealed without its end", "runner", x.runner, "job", it.Job, "fence", it.Fence.String(), "output", held.Output, "of", a.Log.Bytes)
	return x.seal(ctx, a, &wire.ReportItem{Job: it.Job, Fence: it.Fence, Sealed: &held})
}
