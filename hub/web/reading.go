package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const maxLine = 1 << 20 // bytes of one agent event; a longer one is passed over

// reading is the attempt whose two streams are being read.
type reading struct {
	store   Spool
	job     fleet.JobID
	turn    int
	attempt *fleet.Attempt
	items   chan item
	left    int // streams that have not ended

	end  context.CancelFunc // at once
	last context.CancelFunc // what is durable is all there will be
	wg   sync.WaitGroup
}

// item is one frame or event, or the end of a stream.
type item struct {
	output *api.Output
	event  *fleet.Event
	next   int64 // offset behind it
	end    bool
	err    error // of an end that is none
}

// read begins to read both streams of an attempt from the given offsets on.
func read(ctx context.Context, store Spool, job fleet.JobID, turn int, a *fleet.Attempt, output, events int64) *reading {
	r := &reading{store: store, job: job, turn: turn, attempt: a, items: make(chan item, 16), left: 2}
	ctx, r.end = context.WithCancel(ctx)
	growing, last := context.WithCancel(ctx)
	r.last = last
	r.wg.Go(func() { r.pump(ctx, growing, spool.Output, output, r.frames) })
	r.wg.Go(func() { r.pump(ctx, growing, spool.Events, events, r.lines) })
	return r
}

func (r *reading) stop() {
	r.end()
	r.last()
	r.wg.Wait()
}

// pump reads one stream as it grows, and when it grows no more what is left of it.
func (r *reading) pump(ctx, growing context.Context, name spool.Name, from int64, each func(context.Context, io.Reader, int64) (int64, error)) {
	key := spool.Key{Job: r.job, Fence: r.attempt.Fence, Name: name}
	var err error
	for rctx, follow := growing, true; ; rctx, follow = ctx, false {
		var src io.ReadCloser
		if src, err = r.store.Reader(rctx, key, from, follow); err == nil {
			from, err = each(ctx, src, from)
			src.Close()
		}
		if ctx.Err() != nil {
			return
		}
		if !follow || growing.Err() == nil {
			break
		}
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, fleet.NotFound): // all of it, or never written or deleted
		err = nil
	case errors.Is(err, io.ErrUnexpectedEOF) && growing.Err() != nil: // the rest of a frame never came
		err = nil
	}
	r.put(ctx, item{end: true, err: err})
}

func (r *reading) put(ctx context.Context, it item) bool {
	select {
	case r.items <- it:
		return true
	case <-ctx.Done():
		return false
	}
}

// frames passes on the frames of an output stream that begins at an offset, and
// gives the offset behind the last whole one.
func (r *reading) frames(ctx context.Context, src io.Reader, from int64) (int64, error) {
	fr := fleet.NewFrameReader(src)
	for {
		frame, err := fr.Next()
		if err != nil {
			return from + fr.Offset(), err
		}
		o := &api.Output{Turn: r.turn, Attempt: r.attempt.N, Stream: frame.Kind.String(), At: time.UnixMilli(frame.At).UTC()}
		if utf8.Valid(frame.Payload) {
			o.Text = string(frame.Payload)
		} else {
			o.Base64 = append([]byte(nil), frame.Payload...)
		}
		if !r.put(ctx, item{output: o, next: from + fr.Offset()}) {
			return from, context.Cause(ctx)
		}
	}
}

// lines passes on the events of an event stream in the same way.
func (r *reading) lines(ctx context.Context, src io.Reader, from int64) (int64, error) {
	br := bufio.NewReaderSize(src, 16<<10)
	for {
		line, n, err := readLine(br)
		if err != nil {
			return from, err
		}
		from += n
		var e fleet.Event
		if line == nil || json.Unmarshal(line, &e) != nil {
			continue
		}
		if !r.put(ctx, item{event: &e, next: from}) {
			return from, context.Cause(ctx)
		}
	}
}

// readLine gives the next whole line and how many bytes it took; nil for one that
// is longer than an event can be.
func readLine(br *bufio.Reader) (line []byte, n int64, err error) {
	for {
		part, err := br.ReadSlice('\n')
		n += int64(len(part))
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, 0, err
		}
		if n <= maxLine {
			line = append(line, part...)
		} else {
			line = nil
		}
		if err == nil {
			return line, n, nil
		}
	}
}
