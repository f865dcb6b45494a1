package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// recorded is one piece of output as `job logs --json` writes it.
type recorded struct {
	Stream string    `json:"stream"` // stdout, stderr, mark
	At     time.Time `json:"at"`
	Text   string    `json:"text,omitempty"`
	Base64 []byte    `json:"base64,omitempty"` // of bytes that are not UTF-8
}

// logOptions say what of a job's record is read.
type logOptions struct {
	turn, attempt int
	raw           bool
}

func (a *app) jobLogsCommand() *cobra.Command {
	var o logOptions
	var follow bool
	c := &cobra.Command{
		Use: "logs ID", Aliases: []string{"log"}, Short: "What a job wrote, or what its agent did", Args: exactly("ID"), ValidArgsFunction: a.completeJobs,
		Long: `Show what a job wrote: of a command its standard output and error, each on its own; of an
agent what it said and did. With -f it goes on until the job ends, and ends with its result.
` + exitHelp,
		Example: "  tugline job logs -f 01jq8\n  tugline job logs 01jq8 --turn 1 --attempt 2\n  tugline job logs 01jq8 --raw > stream.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			if follow && o.attempt != 0 {
				return usage("-f follows the current attempt; leave out --attempt")
			}
			if o.turn < 0 || o.attempt < 0 {
				return usage("turns and attempts count from 1")
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			j, _, err := c.job(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if follow {
				return a.follow(cmd.Context(), c, j.ID, followOptions{raw: o.raw, turn: o.turn})
			}
			return a.logs(cmd.Context(), c, j, o)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job ends")
	c.Flags().IntVar(&o.turn, "turn", 0, "of turn `N` (default the newest)")
	c.Flags().IntVar(&o.attempt, "attempt", 0, "of attempt `N` (default the current one)")
	c.Flags().BoolVar(&o.raw, "raw", false, "of an agent: what its program wrote, not what that means")
	return a.jsonFlag(c)
}

// logs shows what is recorded now. A broken connection goes on where it ended.
func (a *app) logs(ctx context.Context, c *client, j *api.Job, o logOptions) error {
	q := url.Values{}
	if o.turn > 0 {
		q.Set("turn", strconv.Itoa(o.turn))
	}
	if o.attempt > 0 {
		q.Set("attempt", strconv.Itoa(o.attempt))
	}
	events := j.Kind == fleet.KindAgent && !o.raw
	read := a.logFrames
	if events {
		q.Set("stream", "events")
		read = a.logEvents()
	} else {
		q.Set("format", "frames")
	}
	var from int64
	var wait backoff
	for tries := 0; ; {
		q.Set("from", strconv.FormatInt(from, 10))
		res, err := c.open(ctx, jobPath(string(j.ID), "/log"), q, "*/*")
		if err != nil {
			return err
		}
		n, err := read(res.Body)
		res.Body.Close()
		from += n
		var f *failure
		if note := fleet.CutNote(j.Notes); err == nil && note != "" && o.turn == 0 && o.attempt == 0 {
			a.say("%s", note)
		}
		if err == nil || errors.As(err, &f) || ctx.Err() != nil {
			return err
		}
		c.ring.passOver(c.hub())
		if n > 0 {
			tries, wait = 0, 0
		}
		if tries++; tries > 5 {
			return c.explain(ctx, err)
		}
		if err := c.rest(ctx, &wait, err); err != nil {
			return err
		}
	}
}

// logFrames writes output frames to where the job wrote them, and gives how many
// bytes of whole frames it read.
func (a *app) logFrames(r io.Reader) (int64, error) {
	src := &whole{r: r}
	fr := fleet.NewFrameReader(bufio.NewReaderSize(src, 64<<10))
	for {
		f, err := fr.Next()
		switch {
		case errors.Is(err, io.EOF):
			return fr.Offset(), nil
		case errors.Is(err, io.ErrUnexpectedEOF) && src.ended:
			a.say("the rest of the last piece of output has not reached the hub yet; ask again, or follow with -f")
			return fr.Offset(), nil
		case errors.Is(err, fleet.ErrBadFrame):
			return fr.Offset(), fail(exitFailed, "the record of the output is damaged at byte %d: %v", fr.Offset(), err)
		case err != nil:
			return fr.Offset(), err
		}
		w := a.out
		switch {
		case a.json:
			o := recorded{Stream: f.Kind.String(), At: time.UnixMilli(f.At).UTC()}
			if utf8.Valid(f.Payload) {
				o.Text = string(f.Payload)
			} else {
				o.Base64 = f.Payload
			}
			b, err := json.Marshal(o)
			if err != nil {
				return fr.Offset(), err
			}
			f.Payload = append(b, '\n')
		case f.Kind == fleet.FrameMark:
			a.say("%s", markText(f.Payload))
			continue
		case f.Kind == fleet.FrameStderr:
			w = a.err
		}
		if _, err := w.Write(f.Payload); err != nil {
			return fr.Offset(), writeFailed(err)
		}
	}
}

// whole remembers that an answer came to its own end. A connection that broke gives
// the same error as an answer that ends inside a frame.
type whole struct {
	r     io.Reader
	ended bool
}

func (w *whole) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.ended = w.ended || err == io.EOF
	return n, err
}

// logEvents writes an agent's events, as lines for people or as they are.
func (a *app) logEvents() func(io.Reader) (int64, error) {
	show := newRenderer(a.out, a.ttyOut, a.colourOut())
	return func(r io.Reader) (n int64, err error) {
		lines := bufio.NewReaderSize(r, 64<<10)
		for {
			l, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				return n, nil // an unfinished line at the end is not recorded whole yet
			}
			if err != nil {
				return n, err
			}
			n += int64(len(l))
			if a.json {
				if _, err := a.out.Write(l); err != nil {
					return n, writeFailed(err)
				}
				continue
			}
			var e fleet.Event
			if json.Unmarshal(l, &e) == nil {
				show.event(e)
			}
			if show.err != nil {
				return n, writeFailed(show.err)
			}
		}
	}
}
