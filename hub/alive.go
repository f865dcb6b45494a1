package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// aliveEvery is how often the hub writes down that it is alive.
const aliveEvery = time.Minute

// moment is one moment by two clocks: the wall clock, which somebody can set, and the
// time since the machine was started, sleep included, which nobody can.
type moment struct {
	Wall time.Time     `json:"wall"`
	Boot string        `json:"boot,omitempty"`
	Up   time.Duration `json:"up_ns"`
}

// expected gives what the wall clock should say now, going by an earlier moment. In
// another run of the machine only the wall clock itself says what has passed, and is
// believed for a week.
func (m moment) expected(now moment) time.Time {
	if m.Boot != "" && m.Boot == now.Boot {
		return m.Wall.Add(max(now.Up-m.Up, 0))
	}
	return m.Wall.Add(min(max(now.Wall.Sub(m.Wall), 0), maxOff))
}

// timekeeper judges the machine's clock.
type timekeeper struct {
	wall func() time.Time
	up   func() (boot string, up time.Duration)
	file string
	log  *slog.Logger

	mu   sync.Mutex
	kept kept
	flow flow
}

// kept is alive.json.
type kept struct {
	Alive moment  `json:"alive"`          // when state time was last with a clock that was believed
	Said  *moment `json:"said,omitempty"` // when somebody said that the clock is right; nil once that is settled
}

// newTimekeeper reads when the hub was last alive. Without that, or where it can't be
// read, state time itself is the last sign of life.
func newTimekeeper(dir string, wall func() time.Time, up func() (string, time.Duration), log *slog.Logger) *timekeeper {
	k := &timekeeper{wall: wall, up: up, file: filepath.Join(dir, "alive.json"), log: log}
	if b, err := os.ReadFile(k.file); err == nil && json.Unmarshal(b, &k.kept) != nil {
		k.kept = kept{}
	}
	return k
}

func (k *timekeeper) now() moment {
	m := moment{Wall: k.wall()}
	m.Boot, m.Up = k.up()
	return m
}

// check says why the clock cannot be believed, or nil.
func (k *timekeeper) check(stateTime time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if k.kept.Alive.Wall.IsZero() {
		k.kept.Alive.Wall = stateTime
	}
	err := believe(now.Wall, stateTime, k.kept.Alive.expected(now), built(), k.toldAt(now))
	if err == nil && !stateTime.IsZero() && now.Wall.Sub(stateTime).Abs() <= maxStep {
		k.kept = kept{Alive: now} // from here on it is judged by this moment
	}
	return err
}

// told says whether somebody said that the clock as it stands is right.
func (k *timekeeper) told() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept.Said != nil && k.toldAt(k.now())
}

func (k *timekeeper) toldAt(now moment) bool {
	return k.kept.Said != nil && now.Wall.Sub(k.kept.Said.expected(now)).Abs() <= maxAhead
}

// accept takes somebody's word for the clock as it stands, until state time is with
// it; a later leap is judged anew. It returns false where the clock was believed
// anyway, and an error for one that nobody can be right about.
func (k *timekeeper) accept(stateTime time.Time) (bool, error) {
	if k.check(stateTime) == nil {
		return false, nil
	}
	if err := believe(k.wall(), stateTime, k.wall(), built(), true); err != nil {
		return false, err
	}
	k.say()
	return true, k.save()
}

func (k *timekeeper) say() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	k.kept.Said = &now
}

// keep writes down, once a minute and at the end, when the hub was alive.
func (k *timekeeper) keep(ctx context.Context, stateTime func() time.Time) {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		_ = k.check(stateTime()) // also where this node does not lead, and nobody else asks
		if err := k.save(); err != nil {
			k.log.Warn("when the hub was alive could not be kept", "err", err)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// save is not synced: a file that a power cut takes is as good as none.
func (k *timekeeper) save() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, err := json.Marshal(k.kept)
	if err == nil {
		if err = os.WriteFile(k.file+".new", b, 0o600); err == nil {
			err = os.Rename(k.file+".new", k.file)
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w: %w", k.file, err, fleet.Unavailable)
	}
	return nil
}

// acceptClock takes a person's word for this machine's clock. Who that is was proven
// by the token, which the state holds; nothing had to be written for it.
func (h *Hub) acceptClock(ctx context.Context, who state.Head) (api.Clock, error) {
	if !h.leading.Load() {
		return api.Clock{}, fmt.Errorf("this node does not lead: %w", fleet.Unavailable)
	}
	k := h.entries.clock
	out := api.Clock{Clock: k.wall().UTC(), StateTime: h.entries.state.Time().UTC()}
	did, err := k.accept(out.StateTime)
	if err != nil || !did {
		return out, err
	}
	out.Accepted = true
	h.log.Warn("the clock was accepted", "clock", out.Clock, "state_time", out.StateTime, "actor", who.Actor)
	// The first entry by the accepted clock bears the name of who accepted it.
	_, err = h.entries.ProposeAs(ctx, who, &state.Expire{AuditAge: 1<<63 - 1})
	return out, err
}
