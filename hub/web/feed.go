package web

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// A page shows thousands of things that change; it is told of them gathered, at a pace
// that it can follow, and asks anew for what changed too much. The gathering never
// waits for the reader, so a slow one holds nothing up and costs a bounded memory.

const (
	feedPause     = 250 * time.Millisecond // at least, between two tellings
	feedShare     = 10                     // a telling may take one in so many parts of the time
	feedTick      = 5 * time.Second
	presenceEvery = 2 * time.Second // how often runners' connections are looked at
	maxFeedRows   = 200             // of one kind in a telling
)

func (s *Server) feedRoutes() {
	for _, t := range []reflect.Type{reflect.TypeFor[api.FeedTick](), reflect.TypeFor[api.FeedChanges](), reflect.TypeFor[api.FeedPresence](), reflect.TypeFor[api.FeedReset](), reflect.TypeFor[api.Event]()} {
		s.api.OpenAPI().Components.Schemas.Schema(t, true, t.Name()) // the library looks at no stream
	}
	o := op(http.MethodGet, "/v1/feed", "stream-feed", "What changes, gathered for a page that shows it, as server-sent events", fleet.RoleViewer)
	o.Description = "The first event is hello, then come changes, presence and tick, each with its data in JSON (FeedTick, FeedChanges, FeedPresence). " +
		"An id is EPOCH-INDEX; come back with it as Last-Event-ID, at any node. Where changes are missing the stream says reset: ask for everything anew. " + o.Description
	huma.Register(s.api, o, wrap(s, func(ctx context.Context, in *struct {
		Last  string `header:"Last-Event-ID"`
		After string `query:"after" doc:"as Last-Event-ID, for the first connection"`
	}) (*huma.StreamResponse, error) {
		last := in.Last
		if last == "" {
			last = in.After
		}
		if err := s.reachEvent(ctx, last); err != nil {
			return nil, err
		}
		// Who sees that the stream is open must miss nothing from then on.
		f := &feed{server: s, m: s.cfg.Log.View().Meta(), marks: marksOf(s.sightings())}
		return s.streaming(func(st *stream, ctx context.Context) { f.run(ctx, st, last) })
	}))
}

// feed is one reader.
type feed struct {
	server *Server
	m      state.Meta // as of the beginning, or the last reset
	marks  map[fleet.RunnerID]mark
	leader string
	term   uint64

	mu      sync.Mutex
	pending gathered
}

// gathered are changes that have not been told yet.
type gathered struct {
	index    uint64 // the last one of which all changes are here
	lost     string // why changes are missing
	jobs     map[fleet.JobID]*fleet.Job
	gone     map[fleet.JobID]bool
	runners  map[fleet.RunnerID]*fleet.Runner
	circuits map[string]*fleet.Circuit // nil: it is gone
	alerts   map[string]*fleet.Alert
	stale    map[string]bool
}

// run tells what changes until the reader leaves.
func (f *feed) run(ctx context.Context, st *stream, last string) {
	at, why := f.place(last)
	f.pending.index = at.index
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	news := make(chan struct{}, 1)
	wg.Go(func() { f.gather(ctx, at.index, news) })

	id := at.String()
	if last != "" && why == "" {
		id = "" // what it missed comes first
	}
	st.put(id, "hello", f.tick(f.server.cfg.Log.View()))
	switch {
	case why != "":
		st.put(at.String(), "reset", api.FeedReset{Detail: why})
	case last != "":
		st.put("", "presence", api.FeedPresence{Stale: true, Seen: f.server.seen()})
	}
	look, tick := time.NewTicker(presenceEvery), time.NewTicker(feedTick)
	defer look.Stop()
	defer tick.Stop()
	var due <-chan time.Time // while there is something to tell
	pause := time.Duration(feedPause)
	for st.fail == nil {
		select {
		case <-ctx.Done():
			return
		case <-news:
			if due == nil {
				due = time.After(pause)
			}
		case <-due:
			due = nil
			began := now()
			f.tell(st)
			pause = max(feedPause, feedShare*now().Sub(began))
		case <-look.C:
			f.tellPresence(st)
			if status := f.server.cfg.Status(); status.Leader != f.leader || status.Term != f.term {
				st.put("", "tick", f.tick(f.server.cfg.Log.View()))
			}
		case <-tick.C:
			st.put("", "tick", f.tick(f.server.cfg.Log.View()))
		}
	}
}

// place gives where the reader is, or where it begins and why it lost its place.
func (f *feed) place(last string) (at cursor, why string) {
	at = cursor{f.m.Epoch, f.m.Index}
	if last == "" {
		return at, ""
	}
	c, ok := parseCursor(last)
	switch {
	case !ok:
		return at, "the event id given is not EPOCH-INDEX"
	case c.epoch != at.epoch:
		return at, "the event id given is of another epoch"
	case c.index > at.index:
		return at, "the event id given is of a change that this hub has not seen"
	}
	return c, ""
}

// tick says where the hub stands.
func (f *feed) tick(v state.View) api.FeedTick {
	m, st := v.Meta(), f.server.cfg.Status()
	f.leader, f.term = st.Leader, st.Term
	out := api.FeedTick{At: now().UTC(), Index: m.Index, Epoch: m.Epoch, Node: f.server.cfg.Node, Leader: st.Leader, Term: st.Term, Seen: f.server.seen()}
	for _, a := range v.Audit(0, 1) {
		out.Audit = a.Index
	}
	return out
}

// gather follows the log from an index on, and keeps what was not told.
func (f *feed) gather(ctx context.Context, after uint64, news chan<- struct{}) {
	for ctx.Err() == nil {
		sub, err := f.server.cfg.Feed.Subscribe(after)
		if err != nil {
			after = f.server.cfg.Log.View().Meta().Index
			f.lose(after, "changes since the event id given are no longer held")
			wake(news)
			// The next try is about what is there now, and fails only if that goes at once.
			select {
			case <-ctx.Done():
			case <-time.After(feedPause):
			}
			continue
		}
		for {
			i, last, c, err := sub.Next(ctx)
			if err != nil {
				break // the log was replaced, or this node was too slow: try from there
			}
			f.add(i, last, c)
			if last {
				after = i
			}
			wake(news)
		}
		sub.Close()
	}
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (f *feed) lose(index uint64, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending = gathered{index: index, lost: why}
}

// staleNames are what the page asks for anew, by what changed.
var staleNames = map[string]string{
	"setting": "settings", "token": "tokens", "ticket": "tickets", "node": "members", "orphan": "orphans", "epoch": "epoch",
	"keys": "keys", "release": "releases", "budget": "budgets", "provision": "provisions", "sign_in": "sign_ins",
}

// add takes in one change.
func (f *feed) add(index uint64, last bool, c state.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &f.pending
	if last {
		p.index = index
	}
	switch {
	case c.Job != nil && c.Removed:
		put(p, &p.gone, c.Job.ID, true, "jobs")
		delete(p.jobs, c.Job.ID)
	case c.Job != nil:
		put(p, &p.jobs, c.Job.ID, c.Job, "jobs")
		delete(p.gone, c.Job.ID)
	case c.Runner != nil:
		put(p, &p.runners, c.Runner.ID, c.Runner, "runners")
	case c.Circuit != nil && c.Removed:
		put(p, &p.circuits, c.Circuit.ID, nil, "circuits")
	case c.Circuit != nil:
		put(p, &p.circuits, c.Circuit.ID, c.Circuit, "circuits")
	case c.Alert != nil:
		put(p, &p.alerts, c.Alert.ID, c.Alert, "alerts")
	default:
		name := staleNames[c.What]
		if name == "" {
			name = "other"
		}
		p.isStale(name)
	}
}

// put keeps what a thing is now, or where too many changed that they did.
func put[K comparable, V any](p *gathered, all *map[K]V, k K, v V, name string) {
	if *all == nil {
		*all = map[K]V{}
	}
	if _, has := (*all)[k]; !has && len(*all) >= maxFeedRows {
		p.isStale(name)
		return
	}
	(*all)[k] = v
}

func (p *gathered) isStale(name string) {
	if p.stale == nil {
		p.stale = map[string]bool{}
	}
	p.stale[name] = true
}

// tell tells what was gathered.
func (f *feed) tell(st *stream) {
	f.mu.Lock()
	p := f.pending
	f.pending = gathered{index: p.index}
	f.mu.Unlock()
	v := f.server.cfg.Log.View()
	if m := v.Meta(); m.Epoch != f.m.Epoch {
		f.m = m
		p.lost, p.index = "the cluster is in another epoch", max(p.index, m.Index)
	}
	id := cursor{f.m.Epoch, p.index}.String()
	if p.lost != "" {
		st.put(id, "reset", api.FeedReset{Detail: p.lost})
		return
	}
	if out := f.shown(v, &p); !emptyChanges(out) {
		st.put(id, "changes", out)
	}
}

func emptyChanges(c api.FeedChanges) bool {
	return len(c.Jobs)+len(c.JobsGone)+len(c.Runners)+len(c.RunnersGone)+len(c.Circuits)+len(c.CircuitsGone)+len(c.Alerts)+len(c.Stale) == 0
}

// shown gives changes as the interface shows them. What is asked for anew anyway is
// left out.
func (f *feed) shown(v state.View, p *gathered) (out api.FeedChanges) {
	s, x := f.server, f.server.sight(v)
	if !p.stale["jobs"] {
		for _, j := range p.jobs {
			out.Jobs = append(out.Jobs, x.row(j))
		}
		slices.SortFunc(out.Jobs, func(a, b api.Job) int { return cmp.Compare(a.ID, b.ID) })
		for id := range p.gone {
			out.JobsGone = append(out.JobsGone, id)
		}
		slices.Sort(out.JobsGone)
	}
	if !p.stale["runners"] {
		for id := range p.runners {
			r, ok := v.Runner(id)
			if !ok || r.Removed {
				out.RunnersGone = append(out.RunnersGone, id)
				continue
			}
			out.Runners = append(out.Runners, s.showRunner(v, r, x.present()[id]))
		}
		slices.Sort(out.RunnersGone)
		slices.SortFunc(out.Runners, func(a, b api.Runner) int { return cmp.Compare(a.ID, b.ID) })
	}
	if !p.stale["circuits"] {
		for id, c := range p.circuits {
			if c == nil {
				out.CircuitsGone = append(out.CircuitsGone, id)
				continue
			}
			out.Circuits = append(out.Circuits, s.showCircuit(v, c))
		}
		slices.Sort(out.CircuitsGone)
	}
	if !p.stale["alerts"] {
		for _, a := range p.alerts {
			out.Alerts = append(out.Alerts, showAlert(a))
		}
		slices.SortFunc(out.Alerts, func(a, b fleet.Alert) int { return cmp.Compare(a.ID, b.ID) })
	}
	for name := range p.stale {
		out.Stale = append(out.Stale, name)
	}
	slices.Sort(out.Stale)
	return out
}

// row gives a job as lists have it, without its history.
func (x *sight) row(j *fleet.Job) api.Job {
	sh := x.show(j)
	sh.Turns, sh.Attempts = []*fleet.Turn{}, []api.Attempt{}
	return sh
}
