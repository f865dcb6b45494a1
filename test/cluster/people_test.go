package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// people submit jobs, look at them and cancel some, and remember what they were told.
type people struct {
	w       *world
	wg      sync.WaitGroup
	history history

	mu       sync.Mutex
	promised []promise
	tries    int // requests
	unsure   int // that ended without an answer
}

const askTime = 45 * time.Second // for one request with all its repetitions

// run has people at work until ctx ends.
func (p *people) run(ctx context.Context, n int) {
	for i := range n {
		one := newPerson(p.w, fmt.Sprintf("p-%02d", i))
		r := p.w.rand(uint64(500 + i))
		p.wg.Go(func() { p.work(ctx, one, i, r) })
	}
	one, r := newPerson(p.w, fmt.Sprintf("p-%02d", n)), p.w.rand(499)
	p.wg.Go(func() { p.operate(ctx, one, r) })
}

func (p *people) work(ctx context.Context, one *person, n int, r *rand.Rand) {
	for k := 0; ; k++ {
		select {
		case <-time.After(between(r, 50*time.Millisecond, 9*time.Second)):
		case <-ctx.Done():
			return
		}
		one.at = r.IntN(hubCount)
		switch d := r.IntN(20); {
		case d < 9:
			p.submit(one, n, k, r)
		case d < 14:
			p.read(one, n, r)
		case d < 16:
			p.cancel(one, n, k, r)
		default:
			p.readSince(one, r)
		}
	}
}

// repeat makes a request under its key until it is answered, at one hub after the
// other. What is refused for the moment is asked again; false: it was given up.
func (p *people) repeat(one *person, r *rand.Rand, method, path, key string, body any) (answer, bool) {
	end := time.Now().Add(askTime)
	for time.Now().Before(end) {
		if p.w.opt.Broken == keyless {
			key += "+"
		}
		a, err := one.ask(context.Background(), method, path, key, body)
		p.mu.Lock()
		p.tries++
		if err != nil || a.code == fleet.OutcomeUnknown {
			p.unsure++
		}
		p.mu.Unlock()
		if err == nil && a.status < 500 && a.status != http.StatusTooManyRequests {
			return a, true
		}
		one.at++
		pass(between(r, 100*time.Millisecond, 2*time.Second))
	}
	return answer{}, false
}

func (p *people) submit(one *person, n, k int, r *rand.Rand) {
	name := fmt.Sprintf("%s-%d", one.id, k)
	in := api.Submit{Kind: fleet.KindExec, Argv: []string{"/bin/work", name}, OnLost: "hold"}
	if r.IntN(2) == 0 {
		in.OnLost = "rerun"
	}
	if r.IntN(2) == 0 {
		in.Automation = automations[r.IntN(len(automations))]
	}
	if in.Priority = r.IntN(5) - 2; r.IntN(5) == 0 {
		in.Needs = &fleet.Needs{Docker: true}
	}
	hot := r.IntN(2) == 0                              // some runners have more to do than they can
	if r.IntN(2) == 0 && p.w.opt.Broken != forgetful { // a lost agent's provider is left alone for a while
		forAgent(&in, r)
		hot = hot || r.IntN(2) == 0
	}
	if hot {
		in.On = p.w.fleet[r.IntN(hotCount)].name
	}
	done := p.history.begin(n, input{op: opSubmit})
	a, ok := p.repeat(one, r, http.MethodPost, "/v1/jobs", "key-"+name, in)
	if !ok {
		return // nobody knows its id, so nobody asks for it
	}
	var j api.Job
	if a.status != http.StatusCreated || json.Unmarshal(a.body, &j) != nil {
		p.w.wrong("a submit was answered with %d: %v", a.status, one.last)
		return
	}
	done(j.ID, output{state: j.State})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.promised = append(p.promised, promise{id: j.ID, index: a.index, name: name})
}

// automations are those that ask for jobs.
var automations = []string{"nightly", "weekly", "hourly"}

// forAgent makes a job one for an agent.
func forAgent(in *api.Submit, r *rand.Rand) {
	in.Env = map[string]string{nameKey: in.Argv[1]}
	in.Kind, in.Prompt, in.Argv = fleet.KindAgent, "do "+in.Argv[1], nil
	in.Harness, in.Model, in.MaxTokens = agents[r.IntN(len(agents))], models[r.IntN(len(models))], 100
	if r.IntN(2) == 0 {
		n := r.IntN(4)
		in.Retries = &n
	}
	for range r.IntN(3) {
		c := fleet.Choice{Harness: agents[r.IntN(len(agents))], Model: models[r.IntN(len(models))]}
		if !slices.Contains(in.Fallbacks, c) && (c != fleet.Choice{Harness: in.Harness, Model: in.Model}) {
			in.Fallbacks = append(in.Fallbacks, c)
		}
	}
}

// any gives a job that was acknowledged, newer ones rather.
func (p *people) any(r *rand.Rand) (promise, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := len(p.promised)
	if k == 0 {
		return promise{}, false
	}
	return p.promised[max(k-1-r.IntN(12), 0)], true
}

func (p *people) promises() []promise {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.promised[:len(p.promised):len(p.promised)]
}

// done is how many jobs were acknowledged.
func (p *people) done() int { return len(p.promises()) }

func (p *people) read(one *person, n int, r *rand.Rand) {
	x, ok := p.any(r)
	if !ok {
		return
	}
	done := p.history.begin(n, input{op: opGet})
	a, err := one.ask(context.Background(), http.MethodGet, "/v1/jobs/"+string(x.id)+"?consistent=true", "", nil)
	var j api.Job
	switch {
	case err != nil || a.status >= 500:
	case a.status == http.StatusNotFound:
		done(x.id, output{absent: true})
	case a.status != http.StatusOK || json.Unmarshal(a.body, &j) != nil:
		p.w.wrong("a read was answered with %d: %v", a.status, one.last)
	default:
		done(x.id, output{state: j.State})
	}
}

// readSince asks any node for a job that was acknowledged, naming the entry by which it
// was: the node has it, or says that it is not so far yet.
func (p *people) readSince(one *person, r *rand.Rand) {
	x, ok := p.any(r)
	if !ok {
		return
	}
	hub := one.w.hubs.nodes[one.at%hubCount]
	a, err := one.askSince(context.Background(), http.MethodGet, "/v1/jobs/"+string(x.id), x.index)
	switch {
	case err != nil || a.status >= 500:
	case a.status != http.StatusOK:
		p.w.wrong("%s answered for job %s, acknowledged at %d, with %d: %v", hub.id, x.id, x.index, a.status, one.last)
	case a.index < x.index:
		p.w.wrong("%s was asked for entry %d and answered from %d", hub.id, x.index, a.index)
	}
}

func (p *people) cancel(one *person, n, k int, r *rand.Rand) {
	x, ok := p.any(r)
	if !ok {
		return
	}
	done := p.history.begin(n, input{op: opCancel})
	a, ok := p.repeat(one, r, http.MethodPost, "/v1/jobs/"+string(x.id)+"/cancel", "key-c-"+one.id+"-"+strconv.Itoa(k), api.Cancel{})
	var j api.Job
	switch {
	case !ok:
		done(x.id, output{unknown: true})
	case a.status == http.StatusConflict:
		done(x.id, output{refused: true})
	case a.status == http.StatusNotFound:
		done(x.id, output{absent: true})
	case a.status >= 300 || json.Unmarshal(a.body, &j) != nil:
		p.w.wrong("a cancel was answered with %d: %v", a.status, one.last)
	default:
		done(x.id, output{state: j.State})
	}
}
