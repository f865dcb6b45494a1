package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// dumped is one line of a dump: an entry of the log, a command of one that has several,
// or the state at its end.
type dumped struct {
	Entry   uint64             `json:"entry"`           // of the log
	Part    int                `json:"part,omitempty"`  // which of its commands, where it has several
	Index   uint64             `json:"index,omitempty"` // of the command, as fences and events have it; absent where it is not known
	Term    uint64             `json:"term,omitempty"`
	At      *time.Time         `json:"at,omitempty"`
	Kind    string             `json:"kind"` // command, members, barrier, noop, state
	Command string             `json:"command,omitempty"`
	Actor   string             `json:"actor,omitempty"`
	From    string             `json:"from,omitempty"`
	Stamp   *time.Time         `json:"stamp,omitempty"` // the proposer's clock
	Body    any                `json:"body,omitempty"`
	Members []consensus.Member `json:"members,omitempty"`
	Unknown string             `json:"unknown,omitempty"` // why this version cannot read it
}

// Dump writes the log of the node in dir, which does not run, one JSON document a
// line, the oldest entry first, and last what the state is at its end. It changes
// nothing.
func Dump(dir string, w io.Writer) error {
	out := json.NewEncoder(w)
	raft := filepath.Join(dir, "raft")
	err := consensus.Dump(raft, func(e consensus.Entry) error {
		d := dumped{Entry: e.Index, Part: e.Part, Index: e.Number, Term: e.Term, Kind: e.Kind, Members: e.Members}
		if !e.At.IsZero() {
			at := e.At.UTC()
			d.At = &at
		}
		if e.Kind == "command" {
			h, c, err := state.Decode(e.Data)
			if err != nil {
				d.Unknown = err.Error()
			} else {
				at := h.At.UTC()
				d.Command, d.Actor, d.From, d.Stamp, d.Body = strings.TrimPrefix(fmt.Sprintf("%T", c), "*state."), h.Actor, h.From, &at, c
			}
		}
		return out.Encode(d)
	})
	if err != nil {
		return explainOffline(dir, err)
	}
	m := newMachine()
	defer m.feed.Close()
	c, err := consensus.Replay(raft, m)
	if err != nil {
		return explainOffline(dir, err)
	}
	d := dumped{Entry: c.Applied, Index: m.state.View().Meta().Index, Term: c.Term, Kind: "state", Members: c.Members, Body: summary(m.state.View(), c)}
	if c.Refused != nil {
		d.Unknown = c.Refused.Error()
	}
	return out.Encode(d)
}

// summary counts what a state holds.
func summary(v state.View, c consensus.Contents) any {
	m := v.Meta()
	jobs := map[string]int{}
	open := 0
	for _, o := range collect(v) {
		if o.Attempt.AcceptedAt != nil {
			open++
		}
	}
	v.Jobs("", func(j *fleet.Job) bool { jobs[string(j.State)]++; return true })
	return map[string]any{
		"cluster": m.Cluster, "epoch": m.Epoch, "state_time": m.Time.UTC(), "last_index": c.Last, "committed_index": c.Committed, "snapshot_index": c.Snapshot,
		"jobs": jobs, "open_attempts": open, "runners": len(v.Runners()), "nodes": v.AllNodes(), "tokens": len(v.Tokens()), "orphans": len(v.Orphans()),
	}
}

// explainOffline says what to do about a log that cannot be read at rest.
func explainOffline(dir string, err error) error {
	switch {
	case errors.Is(err, consensus.ErrLocked):
		return fmt.Errorf("the hub in %s runs: stop it first, or look at a copy of the directory: %w", dir, err)
	case errors.Is(err, consensus.ErrEmpty):
		return fmt.Errorf("no hub node lives in %s: %w", dir, err)
	}
	return err
}
