package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// written is what several nodes log.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// lines are those that have all the words.
func (w *written) lines(words ...string) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
next:
	for line := range strings.Lines(w.b.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		out = append(out, line)
	}
	return out
}

// A node that is away is told of once, and once when it is back.
func TestOneWordOfANodeThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w written
		l := newLab(t)
		ids := []string{"a", "b", "c"}
		for _, id := range ids {
			l.open(id, func(c *Config) {
				c.Bootstrap, c.Voters, c.Logger = true, ids, slog.New(slog.NewTextHandler(&w, nil))
			})
		}
		defer l.end()
		leader := l.leader()
		me, off := leader.cfg.NodeID, l.others(leader)[0].cfg.NodeID
		l.cut(off)
		for range 60 {
			mustPropose(t, leader, "x")
			time.Sleep(time.Second)
		}
		l.cut()
		time.Sleep(20 * time.Second)
		if got := w.lines("level=ERROR", "node="+me); len(got) > 0 {
			t.Errorf("%d errors are told of a node that is away, such as %s", len(got), got[0])
		}
		for _, says := range []string{"another node does not answer", "another node answers again"} {
			if got := w.lines(says, "node="+me, "peer="+off); len(got) != 1 {
				t.Errorf("%q is told %d times", says, len(got))
			}
		}
		if got := w.lines("component=raft", "node="+me, "level=INFO"); len(got) > 10 {
			t.Errorf("raft tells %d times of something, such as %s", len(got), got[len(got)-1])
		}
	})
}

// A learner that has not caught up is how every join goes; other failures are told.
func TestALearnerThatIsBehindIsNoError(t *testing.T) {
	var w written
	l := raftLogger(slog.New(slog.NewTextHandler(&w, nil)))
	l.Error("failed to add raft voting peer", "error", fmt.Errorf("promote b: %w", ErrBehind))
	l.Error("Failed to reconcile current state with the desired state", "error", errors.New("promote b: "+ErrBehind.Error()))
	if got := w.lines("level="); len(got) > 0 {
		t.Errorf("told: %q", got)
	}
	l.Error("failed to add raft voting peer", "error", errors.New("disk"))
	l.Log(hclog.Error, "failed to get log", "error", errors.New("disk"))
	if got := w.lines("level=ERROR"); len(got) != 2 {
		t.Errorf("told: %q", got)
	}
}
