package hub

import (
	"context"
	"crypto/rand"
	"maps"
	"sync"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const provisionsEvery = 2 * time.Second

// provisions is what of installations is no record: credentials, sealed to the runner
// that is to have them, and what runners that have not begun wait for. It is the
// leader's memory. Its methods may be called from many goroutines and never wait.
type provisions struct {
	mu     sync.Mutex
	sealed map[string][]byte // by id
	waits  map[string]string
}

func newProvisions() *provisions {
	return &provisions{sealed: map[string][]byte{}, waits: map[string]string{}}
}

// give seals credentials for an installation and keeps them until its outcome.
func (p *provisions) give(r *fleet.Runner, id string, values map[string]string) error {
	b, err := wire.SealCredentials(r.BoxKey, rand.Reader, id, values)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed[id] = b
	return nil
}

// standing says what an installation waits for, in the runner's words, and whether its
// credentials are gone: the node that had them leads no more.
func (p *provisions) standing(x *fleet.Provision) (waits string, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waits[x.ID], x.State == fleet.ProvisionQueued && len(x.Credentials) > 0 && p.sealed[x.ID] == nil
}

// next gives the installation that a runner is to make: the oldest one that has all it
// needs. One that the runner has taken on is asked about until its outcome is there.
func (p *provisions) next(v state.View, r *fleet.Runner) *wire.Provision {
	if fleet.ProvisioningOff(v.Meta().Settings) {
		return nil
	}
	all := v.ProvisionsOf(r.ID)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(all) - 1; i >= 0; i-- {
		x := all[i]
		sealed := p.sealed[x.ID]
		if !x.Open() || x.State == fleet.ProvisionQueued && len(x.Credentials) > 0 && sealed == nil {
			continue
		}
		return &wire.Provision{ID: x.ID, What: x.What, Version: x.Version, Credentials: x.Credentials, PreserveAuth: x.PreserveAuth, Sealed: sealed}
	}
	return nil
}

// heard takes what a runner tells, and gives what of it is to be recorded.
func (p *provisions) heard(v state.View, r fleet.RunnerID, w wire.ProvisionView) state.Command {
	x, ok := v.Provision(w.ID)
	if !ok || x.Runner != r || !x.Open() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waits, x.ID)
	switch w.State {
	case wire.ProvisionWaits:
		p.waits[x.ID] = fleet.CutText(w.Detail, fleet.MaxDetail)
	case wire.ProvisionInstalls:
		if x.State == fleet.ProvisionQueued {
			return &state.DeliverProvision{Runner: r, ID: x.ID}
		}
	case wire.ProvisionSucceeded:
		return &state.EndProvision{Runner: r, ID: x.ID, Installed: w.Installed, Detail: w.Detail}
	case wire.ProvisionFailed:
		return &state.EndProvision{Runner: r, ID: x.ID, Class: w.Class, Detail: w.Detail}
	}
	return nil
}

// tidy drops what belongs to installations that have ended.
func (p *provisions) tidy(v state.View) {
	over := func(id string) bool {
		x, ok := v.Provision(id)
		return !ok || !x.Open()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, b := range p.sealed {
		if over(id) {
			clear(b)
			delete(p.sealed, id)
		}
	}
	maps.DeleteFunc(p.waits, func(id, _ string) bool { return over(id) })
}

// forget drops all of it: the node leads no more.
func (p *provisions) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.sealed {
		clear(b)
	}
	clear(p.sealed)
	clear(p.waits)
}

// tidyProvisions keeps credentials in memory no longer than they are of use.
func (l *term) tidyProvisions(ctx context.Context) {
	defer l.hub.provisions.forget()
	tick := time.NewTicker(provisionsEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.hub.provisions.tidy(l.hub.entries.View())
		case <-ctx.Done():
			return
		}
	}
}
