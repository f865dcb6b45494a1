package cluster

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// bounds are the budgets that all worlds begin with.
var bounds = map[string]api.SetBudget{
	"automation":         {MaxWall: "16h", Window: "24h"}, // a job may take two hours
	"automation:nightly": {MaxRuns: 4, Window: "1m"},
	"automation:weekly":  {MaxTokens: 900, Window: "2m"},
	"automation:hourly":  {MaxRuns: 40, MaxTokens: 4000},
}

// settle sets what all worlds begin with.
func (p *person) settle(ctx context.Context) error {
	// So that a job that is lost runs again while a process of it may still go on.
	err := p.does(ctx, http.MethodPut, "/v1/settings/"+fleet.SettingRetryPause, map[string]string{"value": "1s"})
	for origin, b := range bounds {
		err = cmp.Or(err, p.does(ctx, http.MethodPut, "/v1/budgets/"+origin, b))
	}
	return err
}

// does makes a request of which only the success matters.
func (p *person) does(ctx context.Context, method, path string, body any) error {
	a, err := p.ask(ctx, method, path, "", body)
	if err == nil && a.status >= 300 {
		err = p.last
	}
	return err
}

// operate has a person look after the fleet until ctx ends: not always wisely.
func (p *people) operate(ctx context.Context, one *person, r *rand.Rand) {
	for {
		select {
		case <-time.After(between(r, 500*time.Millisecond, 5*time.Second)):
		case <-ctx.Done():
			return
		}
		one.at = r.IntN(hubCount)
		err := p.act(context.Background(), one, r)
		p.w.debug("%s: %v", one.id, err)
	}
}

func (p *people) act(ctx context.Context, one *person, r *rand.Rand) error {
	m := p.w.fleet[r.IntN(len(p.w.fleet))]
	if r.IntN(2) == 0 {
		m = p.w.fleet[r.IntN(hotCount)]
	}
	of := "/v1/runners/" + m.name
	switch r.IntN(12) {
	case 0, 1:
		return one.does(ctx, http.MethodPost, of+"/slots", api.SetSlots{Automation: r.IntN(4)})
	case 2:
		in := api.Cordon{Reason: "by chance"}
		if r.IntN(2) == 0 {
			in.For = "1m"
		}
		return one.does(ctx, http.MethodPost, of+"/cordon", in)
	case 3, 4:
		in := api.Drain{Reason: "by chance", Deadline: fmt.Sprint(1+r.IntN(15), "s"), Then: []string{"finish", "cancel"}[r.IntN(2)]}
		return one.does(ctx, http.MethodPost, of+"/drain", in)
	case 5, 6, 7:
		return p.resume(ctx, one, r)
	case 8:
		in := api.OpenCircuit{Scope: fleet.ScopeHost, Runner: m.name, For: "1m", Reason: "by chance"}
		if r.IntN(2) == 0 {
			in.Scope, in.Provider = fleet.ScopeProvider, "openai"
		}
		return one.does(ctx, http.MethodPost, "/v1/circuits/open", in)
	case 9:
		return one.does(ctx, http.MethodPut, "/v1/budgets/automation:hourly", api.SetBudget{MaxRuns: int64(20 + r.IntN(40)), MaxTokens: int64(1000 + r.IntN(4000))})
	}
	return p.repair(ctx, one, r, 1)
}

// resume gives some of the runners that are held work again.
func (p *people) resume(ctx context.Context, one *person, r *rand.Rand) error {
	var rs api.Runners
	if err := one.call(ctx, http.MethodGet, "/v1/runners", "", nil, &rs); err != nil {
		return err
	}
	var err error
	for _, x := range rs.Runners {
		if x.Hold != nil && r.IntN(2) == 0 {
			err = cmp.Or(err, one.does(ctx, http.MethodPost, "/v1/runners/"+x.Name+"/resume", nil))
		}
	}
	return err
}

// repair resets at most so many circuits.
func (p *people) repair(ctx context.Context, one *person, r *rand.Rand, most int) error {
	var cs api.Circuits
	err := one.call(ctx, http.MethodGet, "/v1/circuits", "", nil, &cs)
	r.Shuffle(len(cs.Circuits), func(i, j int) { cs.Circuits[i], cs.Circuits[j] = cs.Circuits[j], cs.Circuits[i] })
	for i, c := range cs.Circuits {
		if i < most {
			err = cmp.Or(err, one.does(ctx, http.MethodPost, "/v1/circuits/"+url.PathEscape(c.ID)+"/reset", api.ResetCircuit{Repaired: "by chance"}))
		}
	}
	return err
}

// heal has everything be well again: machines, providers, and what people did. Where the
// world is patient, circuits that end by themselves are left to do so. It is done again
// and again, for what was asked for before may be done late.
func (w *world) heal(ctx context.Context, p *person, r *rand.Rand) error {
	w.healed.Store(true)
	p.at++
	var rs api.Runners
	err := p.call(ctx, http.MethodGet, "/v1/runners", "", nil, &rs)
	for _, x := range rs.Runners {
		if x.Hold != nil {
			err = cmp.Or(err, p.does(ctx, http.MethodPost, "/v1/runners/"+x.Name+"/resume", nil))
		}
		if x.Slots.Automation != 2 {
			err = cmp.Or(err, p.does(ctx, http.MethodPost, "/v1/runners/"+x.Name+"/slots", api.SetSlots{Automation: 2}))
		}
	}
	var bs api.Budgets
	err = cmp.Or(err, p.call(ctx, http.MethodGet, "/v1/budgets", "", nil, &bs))
	for _, b := range bs.Budgets {
		err = cmp.Or(err, p.does(ctx, http.MethodDelete, "/v1/budgets/"+b.Origin, nil))
	}
	if !w.patient() {
		return cmp.Or(err, w.people.repair(ctx, p, r, 1<<20))
	}
	var cs api.Circuits
	err = cmp.Or(err, p.call(ctx, http.MethodGet, "/v1/circuits", "", nil, &cs))
	for _, c := range cs.Circuits {
		if c.State == fleet.CircuitBlocked {
			err = cmp.Or(err, p.does(ctx, http.MethodPost, "/v1/circuits/"+url.PathEscape(c.ID)+"/reset", api.ResetCircuit{Repaired: "at the end"}))
		}
	}
	return err
}

// patient says whether the world waits for circuits to end, or has them reset.
func (w *world) patient() bool { return w.opt.Seed%patience == 0 }

// explained asks why every job that waits does so: there is an answer for each, and one
// for each runner or for the job as a whole.
func (w *world) explained(ctx context.Context) error {
	p := newPerson(w, "p-founder")
	for _, j := range w.look(false)[0].jobs {
		if j.State != fleet.Queued {
			continue
		}
		var e api.Explanation
		err := w.within(ctx, time.Minute, "job "+string(j.ID)+" is explained", func() bool {
			p.at++
			return p.call(ctx, http.MethodGet, "/v1/jobs/"+string(j.ID)+"/explain", "", nil, &e) == nil
		})
		if err != nil {
			return fmt.Errorf("%w: %w", err, p.last)
		}
		if e.State != fleet.Queued {
			continue // it goes on meanwhile
		}
		w.court.cases["explained: "+string(e.Code)]++
		if e.Summary == "" || e.Code == "" && len(e.Runners) == 0 {
			w.wrong("job %s waits, and all that is said of it is %+v", j.ID, e)
		}
		for _, x := range e.Runners {
			if x.Code != "" && x.Detail == "" {
				w.wrong("job %s waits for %s as %s without a word", j.ID, x.Runner, x.Code)
			}
		}
	}
	return nil
}
