package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const (
	reportsAtOnce  = 64               // machines of one entry: with all their words they fit in
	reportText     = 300              // bytes of why a fault began or ended
	reportEvery    = 5 * time.Second  // for what is not urgent
	offlineEvery   = 10 * time.Second // looks for machines that went or came
	maxPressures   = 1024             // reports of pressure that wait to be recorded
	pressureVolume = 200              // bytes of a path in an alert
)

// vitals is what a leader keeps of machines between samples, and what waits to be
// recorded. It takes samples from the sessions and never waits.
type vitals struct {
	record func(fleet.RunnerID) (rec *fleet.HealthRecord, enrolled bool)
	floor  func() int64     // bytes that automation needs for selection
	at     func() time.Time // state time
	pokes  chan struct{}    // something is to be recorded at once

	mu        sync.Mutex
	all       map[fleet.RunnerID]*vital
	waits     map[fleet.RunnerID]bool // have something to be recorded
	pressures map[fleet.RunnerID]*fleet.Pressure
}

func newVitals() *vitals {
	return &vitals{pokes: make(chan struct{}, 1), all: map[fleet.RunnerID]*vital{}, waits: map[fleet.RunnerID]bool{}, pressures: map[fleet.RunnerID]*fleet.Pressure{}}
}

// sample takes one in that has just been received.
func (v *vitals) sample(id fleet.RunnerID, s *fleet.Health, now time.Time) {
	rec, enrolled := v.record(id)
	v.mu.Lock()
	defer v.mu.Unlock()
	if !enrolled {
		delete(v.all, id)
		delete(v.waits, id)
		return
	}
	if s.Age > fleet.HealthFresh {
		return
	}
	one := v.all[id]
	if one == nil {
		one = &vital{}
		v.all[id] = one
	}
	soon := one.note(id, s, rec, v.floor(), now, v.at())
	if one.want == nil {
		delete(v.waits, id)
		return
	}
	v.waits[id] = true
	if soon {
		poke(v.pokes)
	}
}

// pressed takes in what a runner says of a disk that fills up.
func (v *vitals) pressed(id fleet.RunnerID, p *fleet.Pressure) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.pressures) < maxPressures {
		v.pressures[id] = p
		poke(v.pokes)
	}
}

// take gives what is to be recorded now, of so many machines at most.
func (v *vitals) take(n int, now time.Time) []state.HealthReport {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []state.HealthReport
	for id := range v.waits {
		if len(out) == n {
			break
		}
		delete(v.waits, id)
		one := v.all[id]
		out = append(out, *one.want)
		one.want, one.told = nil, now
	}
	return out
}

func (v *vitals) takePressures() map[fleet.RunnerID]*fleet.Pressure {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := v.pressures
	v.pressures = map[fleet.RunnerID]*fleet.Pressure{}
	return out
}

// onHealth takes in a sample for as long as this node leads.
func (h *Hub) onHealth(id fleet.RunnerID, s *fleet.Health, received time.Time) {
	if v := h.vitals.Load(); v != nil {
		h.history.add(id, s, received)
		v.sample(id, s, received)
	}
}

// forgetHealth lets go of samples that are too old, and of those of removed runners, on a
// node that does not lead any more too.
func (h *Hub) forgetHealth(ctx context.Context) {
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		v := h.entries.View()
		h.history.prune(time.Now(), func(id fleet.RunnerID) bool { r, ok := v.Runner(id); return ok && !r.Removed })
	}
}

func (h *Hub) onPressure(id fleet.RunnerID, p *fleet.Pressure) {
	if v := h.vitals.Load(); v != nil {
		v.pressed(id, p)
	}
}

// newVitals makes what takes samples in while this node leads.
func (h *Hub) newVitals() *vitals {
	v := newVitals()
	v.record = func(id fleet.RunnerID) (*fleet.HealthRecord, bool) {
		r, ok := h.entries.View().Runner(id)
		if !ok || r.Removed {
			return nil, false
		}
		return r.Health, true
	}
	v.floor = func() int64 { return fleet.FloorsOf(h.entries.View().Meta().Settings).Select }
	v.at = h.entries.now
	return v
}

// watchHealth records what samples and silence say of machines, beside the leader's loop.
func (l *term) watchHealth(ctx context.Context) {
	v := l.hub.newVitals()
	l.hub.vitals.Store(v)
	defer l.hub.vitals.CompareAndSwap(v, nil)
	tick, seldom := time.NewTicker(reportEvery), time.NewTicker(offlineEvery)
	defer tick.Stop()
	defer seldom.Stop()
	for {
		offline := false
		select {
		case <-ctx.Done():
			return
		case <-v.pokes:
		case <-tick.C:
		case <-seldom.C:
			offline = true
		}
		if l.hub.entries.timely() != nil {
			continue
		}
		if offline {
			l.missing(ctx)
		}
		for reports := v.take(reportsAtOnce, time.Now()); len(reports) > 0 && ctx.Err() == nil; reports = v.take(reportsAtOnce, time.Now()) {
			l.report(ctx, reports)
		}
		for id, p := range v.takePressures() {
			l.raisePressure(ctx, id, p)
		}
	}
}

// missing records which machines went, and which came back.
func (l *term) missing(ctx context.Context) {
	view := l.hub.entries.View()
	l.report(ctx, offlines(view.Runners(), l.lease(view), l.hub.entries.now()))
}

// report records what was seen of machines, some at a time.
func (l *term) report(ctx context.Context, reports []state.HealthReport) {
	for some := range slices.Chunk(reports, reportsAtOnce) {
		for i := range some {
			shorten(some[i].Begun)
			shorten(some[i].Ended)
		}
		l.propose(ctx, &state.RecordHealth{Runners: some})
	}
}

func shorten(all []state.FaultReport) {
	for i := range all {
		all[i].Detail = fleet.CutText(all[i].Detail, reportText)
	}
}

// raisePressure records that a runner's disk fills up. How often is decided where it is
// recorded, so that a change of leaders repeats nothing.
func (l *term) raisePressure(ctx context.Context, id fleet.RunnerID, p *fleet.Pressure) {
	r, ok := l.hub.entries.View().Runner(id)
	if !ok || r.Removed {
		return
	}
	a := fleet.Alert{
		ID:   fmt.Sprintf("%s-%s-%d", state.AlertPressure, id, l.hub.entries.now().Unix()),
		Kind: state.AlertPressure, Runner: id, Name: r.Name, Text: r.Name + ": " + pressureWords(p), Pressure: p,
	}
	l.propose(ctx, &state.RaiseAlert{Alert: a, Every: fleet.PressureEvery})
}

// pressureWords says what fills a disk, the largest first.
func pressureWords(p *fleet.Pressure) string {
	var volumes, usage []string
	for _, v := range p.Volumes {
		path := fleet.CutText(v.Path, pressureVolume)
		switch {
		case !v.Known:
			volumes = append(volumes, "what is free at "+path+" is not known")
		case fewInodes(v, false):
			volumes = append(volumes, fmt.Sprintf("%s has %s of %s and %d of %d inodes free", path, gibibytes(v.Free), gibibytes(v.Total), v.Inodes, v.Nodes))
		default:
			volumes = append(volumes, fmt.Sprintf("%s has %s of %s free", path, gibibytes(v.Free), gibibytes(v.Total)))
		}
	}
	for _, u := range p.Usage {
		if len(usage) < 5 && u.Bytes >= 1<<20 {
			usage = append(usage, u.Class+" "+gibibytes(u.Bytes))
		}
	}
	out := strings.Join(volumes, "; ")
	if p.Floor > 0 {
		out += "; " + gibibytes(p.Floor) + " should be free"
	}
	if len(usage) > 0 {
		out += "; used by " + strings.Join(usage, ", ")
	}
	return fleet.CutText(strings.TrimPrefix(out, "; "), fleet.MaxDetail)
}
