package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// list is an answer to the question for sessions.
func list(ids ...string) json.RawMessage {
	all := fleet.CLISessions{Sessions: []fleet.CLISession{}}
	for _, id := range ids {
		all.Sessions = append(all.Sessions, fleet.CLISession{ID: id, Harness: "codex", Dir: "/w"})
	}
	b, _ := json.Marshal(all)
	return b
}

// askable is the memory of a node that leads until it is told not to.
func askable() (e *errands, leads *atomic.Bool, nudged *atomic.Int64) {
	leads, nudged = new(atomic.Bool), new(atomic.Int64)
	leads.Store(true)
	return newErrands(leads.Load, func(fleet.RunnerID) { nudged.Add(1) }), leads, nudged
}

// idle fails where something is still asked for.
func (e *errands) idle(t *testing.T) {
	t.Helper()
	if len(e.open) > 0 {
		t.Errorf("still asked for: %v", e.open)
	}
}

// Who asks the same waits for the same; it is asked for with each reply until it is
// answered, and never again.
func TestErrandIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, nudged := askable()
		type end struct {
			all fleet.CLISessions
			err error
		}
		ends := make(chan end, 3)
		for range 3 {
			go func() {
				all, err := e.sessions(t.Context(), "r-1")
				ends <- end{all, err}
			}()
		}
		synctest.Wait()
		for range 2 {
			if es := e.asked("r-1"); len(es) != 1 || es[0].Kind != wire.ErrandSessions || es[0].ID == "" {
				t.Fatalf("asked for: %+v", es)
			}
		}
		if es := e.asked("r-2"); len(es) > 0 || nudged.Load() != 3 {
			t.Errorf("another runner is asked for %+v; %d nudges", es, nudged.Load())
		}
		x := e.asked("r-1")[0]
		e.answered("r-1", wire.ErrandDone{ID: "another"})
		e.answered("r-2", wire.ErrandDone{ID: x.ID, Body: list("s-forged")})
		if len(e.asked("r-1")) != 1 {
			t.Fatal("an answer to something else, or of another runner, is taken")
		}
		e.answered("r-1", wire.ErrandDone{ID: x.ID, Body: list("s-1", "s-2")})
		e.answered("r-1", wire.ErrandDone{ID: x.ID, Body: list("s-3")})
		for range 3 {
			if got := <-ends; got.err != nil || len(got.all.Sessions) != 2 {
				t.Errorf("the answer is %+v, %v", got.all, got.err)
			}
		}
		e.idle(t)
		time.Sleep(time.Minute)
		if all, age, ok := e.last("r-1"); !ok || len(all.Sessions) != 2 || age != time.Minute {
			t.Errorf("remembered: %+v of %s ago, %t", all, age, ok)
		}
		if _, _, ok := e.last("r-2"); ok {
			t.Error("a list of another runner is remembered")
		}
	})
}

// Whoever waits in vain is told so, and nothing is left of the question.
func TestErrandEndsWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, leads, _ := askable()
		bound, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := e.sessions(bound, "r-1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without an answer: %v", err)
		}
		e.idle(t)
		begun := time.Now()
		time.AfterFunc(time.Second, func() { leads.Store(false) })
		if _, err := e.session(t.Context(), "r-1", "s", 3); !errors.Is(err, fleet.Unavailable) || !strings.Contains(err.Error(), "ask again") {
			t.Errorf("at a node that leads no more: %v", err)
		}
		if d := time.Since(begun); d > time.Second+2*leaderLook {
			t.Errorf("that was told after %s", d)
		}
		e.idle(t)
		leads.Store(true)
		time.AfterFunc(time.Second, func() {
			e.answered("r-1", wire.ErrandDone{ID: e.asked("r-1")[0].ID, Code: fleet.OwnerPolicy, Detail: "no"})
		})
		if _, err := e.sessions(t.Context(), "r-1"); !errors.Is(err, fleet.OwnerPolicy) || err.Error() != "no" {
			t.Errorf("refused: %v", err)
		}
		if _, _, ok := e.last("r-1"); ok {
			t.Error("a refusal is remembered")
		}
		time.AfterFunc(time.Second, func() {
			e.answered("r-1", wire.ErrandDone{ID: e.asked("r-1")[0].ID, Body: json.RawMessage(`[7`)})
		})
		if _, err := e.sessions(t.Context(), "r-1"); err == nil {
			t.Error("what is no list is taken for one")
		}
		if _, _, ok := e.last("r-1"); ok {
			t.Error("what is no list is told later")
		}
	})
}

// Questions and what is remembered are bounded, whatever runners answer.
func TestErrandsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, _ := askable()
		ctx, cancel := context.WithCancel(t.Context())
		for i := range wire.MaxErrands {
			go e.session(ctx, "r-1", fmt.Sprint(i), 1)
		}
		synctest.Wait()
		if _, err := e.session(ctx, "r-1", "more", 1); !errors.Is(err, fleet.QueueFull) {
			t.Errorf("one question more: %v", err)
		}
		if es := e.asked("r-1"); len(es) != wire.MaxErrands {
			t.Errorf("%d are asked for", len(es))
		}
		cancel()
		synctest.Wait()
		e.idle(t)
		if _, err := e.session(t.Context(), "r-1", strings.Repeat("s", fleet.MaxSessionID+1), 1); !errors.Is(err, fleet.NotFound) {
			t.Errorf("a long id: %v", err)
		}
		big := json.RawMessage(`{"sessions":[],"notes":["` + strings.Repeat("n", wire.MaxAnswer-100) + `"]}`)
		n := maxLists/len(big) + 10
		for i := range n {
			e.mu.Lock()
			e.keep(fleet.RunnerID(fmt.Sprint(i)), big)
			e.keep(fleet.RunnerID(fmt.Sprint(i)), big)
			e.mu.Unlock()
			time.Sleep(time.Second)
		}
		if e.size > maxLists || e.size != len(e.lists)*len(big) {
			t.Errorf("%d bytes of %d lists are remembered", e.size, len(e.lists))
		}
		if _, _, ok := e.last("0"); ok {
			t.Error("the oldest list was kept")
		}
		if _, _, ok := e.last(fleet.RunnerID(fmt.Sprint(n - 1))); !ok {
			t.Error("the newest list was not kept")
		}
	})
}
