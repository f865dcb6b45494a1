package session

import (
	"context"
	"errors"
	"fmt"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// output stores a chunk of a stream and gives the body of its acknowledgement,
// which names what is durable.
func (x *session) output(ctx context.Context, body []byte) ([]byte, error) {
	o, err := wire.DecodeOutput(body)
	if err != nil {
		return nil, err
	}
	ack := wire.OutputAck{Job: o.Job, Fence: o.Fence, Stream: o.Stream}
	ack.Durable, err = x.store(ctx, o)
	if err != nil {
		ack.Code, ack.Detail, ack.Retry = codeOf(err), sentence(err), transient(err)
	}
	return wire.Encode(ack)
}

func (x *session) store(ctx context.Context, o wire.Output) (durable int64, err error) {
	s := x.srv
	if !s.cfg.Leading() {
		return 0, fmt.Errorf("this hub does not lead: %w", fleet.Unavailable)
	}
	v := s.cfg.Proposer.View()
	if err := s.current(v); err != nil {
		return 0, err
	}
	if _, _, _, err := x.own(v, o.Job, o.Fence); err != nil && !x.unrecorded(v, o.Job, o.Fence) {
		return 0, err
	}
	key := streamKey(o.Job, o.Fence, o.Stream)
	durable, err = s.cfg.Spool.Append(ctx, key, o.Offset, o.Data)
	var gap *spool.GapError
	if errors.As(err, &gap) {
		durable = gap.Want
	}
	if err != nil {
		return durable, fmt.Errorf("store %s at %d: %w", key, o.Offset, err)
	}
	return durable, nil
}

func streamKey(j fleet.JobID, f fleet.Fence, st wire.Stream) spool.Key {
	return spool.Key{Job: j, Fence: f, Name: spool.Name(st)}
}
