package hub

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// machine lets consensus drive the state and tells the feed what changed, once a
// whole batch can be seen.
type machine struct {
	state *state.Machine
	feed  *consensus.Feed
	news  *[]news
}

type news struct {
	index  uint64
	events []any
}

func newMachine() machine {
	return machine{state: state.New(), feed: consensus.NewFeed(8192), news: new([]news)}
}

func (m machine) Begin() { m.state.Begin() }

// Apply takes a command under its number in the log, which is an index to all that
// looks at the state.
func (m machine) Apply(index uint64, command []byte) (any, error) {
	res, changes, err := m.state.Apply(index, command)
	if err != nil {
		return nil, err
	}
	events := make([]any, len(changes))
	for i, c := range changes {
		events[i] = c
	}
	*m.news = append(*m.news, news{index, events})
	return res, nil
}

func (m machine) End() {
	m.state.Commit()
	for _, n := range *m.news {
		m.feed.Publish(n.index, n.events...)
	}
	clear(*m.news)
	*m.news = (*m.news)[:0]
}

func (m machine) Snapshot() (func(io.Writer) error, error) { return m.state.Snapshot(), nil }

// Check says whether Restore would take what it reads, and changes nothing.
func (machine) Check(r io.Reader) error { return state.New().Restore(r) }

func (m machine) Restore(r io.Reader) error {
	if err := m.state.Restore(r); err != nil {
		return err
	}
	m.feed.Reset(m.state.View().Meta().Index)
	return nil
}

// log is the one way to change the replicated state.
type log struct {
	node  *consensus.Node
	state *state.Machine
	clock *timekeeper  // the only one that entries are stamped by
	room  func() error // refuses while the disk is nearly full
	// voices are the clocks of the other voters; nil: there are none.
	voices func() []voice
	leads  func() bool // this node leads, and its term has begun
}

// timely says why the node's clock cannot be believed, or nil. Beside other voters it
// is they who tell; alone, the log and what the node remembers.
func (l *log) timely() error {
	at := l.state.Time()
	if l.voices != nil {
		if others := l.voices(); len(others) > 0 {
			wall := l.clock.wall()
			if err := agree(wall, at, others); err != nil {
				return err
			}
			return believe(wall, at, wall, built(), true)
		}
	}
	return l.clock.check(at)
}

// View gives the state as of the last applied entry.
func (l *log) View() state.View { return l.state.View() }

// Propose commits a command of the hub itself or of a runner.
func (l *log) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	return l.ProposeAs(ctx, state.Head{Actor: "hub"}, cmd)
}

// Record commits a command of the hub itself for whom a refusal is an error.
func (l *log) Record(ctx context.Context, cmd state.Command) error {
	return l.RecordAs(ctx, state.Head{Actor: "hub"}, cmd)
}

// RecordAs is Record in the name of an actor.
func (l *log) RecordAs(ctx context.Context, h state.Head, cmd state.Command) error {
	res, err := l.ProposeAs(ctx, h, cmd)
	if err != nil {
		return err
	}
	return res.Err()
}

// ProposeAs commits a command in the name of an actor. A refusal is a result with
// a code; an error says that there is no leader, that the clock is wrong or that
// the outcome is unknown.
func (l *log) ProposeAs(ctx context.Context, h state.Head, cmd state.Command) (state.Result, error) {
	if err := l.timely(); err != nil {
		return state.Result{}, err
	}
	switch cmd.(type) {
	case *state.SubmitJob, *state.FollowUp, *state.RetryJob:
		// What is under way may end; nothing new may begin.
		if err := l.room(); err != nil {
			return state.Result{}, err
		}
	}
	cmd = state.WithRules(cmd, l.state.Nodes())
	if node, held := state.Held(cmd, l.state.Nodes()); held {
		return state.Result{Code: fleet.Unavailable, Detail: fmt.Sprintf("hub node %s runs a version that cannot read this yet; upgrade it", node)}, nil
	}
	at := l.state.Time()
	wall := l.clock.flows(at, l.clock.wall())
	h.At = stamp(wall, at, step(wall, at, l.clock.told()))
	entry, err := state.Encode(h, cmd)
	if err != nil {
		return state.Result{}, err
	}
	res, _, err := l.node.Propose(ctx, entry)
	switch {
	case err == nil:
		return res.(state.Result), nil
	case errors.Is(err, consensus.ErrUnknown):
		return state.Result{}, fmt.Errorf("%w: %w", fleet.OutcomeUnknown, err)
	}
	return state.Result{}, l.notTaken(err)
}
