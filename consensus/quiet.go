package consensus

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

// raft tells of every message to a node that is away, and the library that promotes
// learners of every look at one that has not caught up. What there is to know of the
// first is told once, by its link; the second is how every join goes.

// repeated are raft's messages that a node's absence brings again and again.
var repeated = []string{
	"failed to heartbeat to", "failed to appendEntries to", "failed to pipeline appendEntries",
	"failed to start pipeline replication to", "failed to make requestVote RPC", "failed to contact",
	"Election timeout reached, restarting election",
}

// ordinary are messages that name an error where only something is not yet so.
var ordinary = []string{"failed to add raft voting peer", "Failed to reconcile current state with the desired state"}

// levelOf is the level at which a message of raft's, or of the library around it, is told.
func levelOf(l hclog.Level, msg string, args []any) slog.Level {
	switch {
	case slices.Contains(repeated, msg):
		return slog.LevelDebug
	case slices.Contains(ordinary, msg) && mentions(args, ErrBehind):
		return slog.LevelDebug
	case msg == "peer has newer term, stopping replication":
		return slog.LevelInfo
	}
	return level(l)
}

// mentions says whether an error among args tells of err, if only by its text.
func mentions(args []any, err error) bool {
	return slices.ContainsFunc(args, func(a any) bool {
		e, ok := a.(error)
		return ok && strings.Contains(e.Error(), err.Error())
	})
}

// news says once that the other node does not answer any more, and once that it does
// again. It is called with mu, before contact is set.
func (l *link) news(answered bool, err error) {
	now := time.Now()
	switch {
	case answered:
		if l.away {
			l.wire.log.Info("another node answers again", "peer", l.id)
		}
		l.away, l.failing = false, time.Time{}
	case l.failing.IsZero():
		l.failing = now
	case !l.away && now.Sub(l.failing) > l.wire.quick:
		l.away = true
		l.wire.log.Warn("another node does not answer", "peer", l.id, "err", err)
	}
}
