package web

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// sightings are all runners as they were seen a moment ago, for all readers of the feed
// together.
type sightings struct {
	mu  sync.Mutex
	at  time.Time
	all map[fleet.RunnerID]sighting
}

type sighting struct {
	row api.Runner
	mark
}

// mark is what a reader knows of a runner.
type mark struct {
	said string // what a change of is told
	beat int64
}

// sightings looks at all runners, unless somebody just did.
func (s *Server) sightings() map[fleet.RunnerID]sighting {
	x := &s.seenRunners
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all != nil && now().Sub(x.at) < presenceEvery/2 {
		return x.all
	}
	v, present := s.cfg.Log.View(), s.present()
	all := map[fleet.RunnerID]sighting{}
	for _, r := range v.Runners() {
		row := s.showRunner(v, r, present[r.ID])
		all[r.ID] = sighting{row, markOf(&row)}
	}
	x.at, x.all = now(), all
	return all
}

// markOf leaves out what changes with every heartbeat.
func markOf(r *api.Runner) (m mark) {
	if r.LastBeat != nil {
		m.beat = r.LastBeat.UnixMilli()
	}
	docker := fleet.DockerState("")
	if r.Health.Sample != nil {
		docker = r.Health.Sample.Docker.State
	}
	b, err := json.Marshal([]any{r.State, r.Slots, r.Hold, r.Health.Class, r.Health.Fresh, r.Health.Faults, docker, r.Conflict, r.Declining, r.Transport, r.Address, r.Jobs})
	if err == nil { // it is made of what the interface sends anyway
		m.said = string(b)
	}
	return m
}

func marksOf(all map[fleet.RunnerID]sighting) map[fleet.RunnerID]mark {
	out := make(map[fleet.RunnerID]mark, len(all))
	for id, s := range all {
		out[id] = s.mark
	}
	return out
}

// tellPresence tells what changed of runners since the last look.
func (f *feed) tellPresence(st *stream) {
	all := f.server.sightings()
	out := api.FeedPresence{Beats: map[fleet.RunnerID]int64{}, Seen: f.server.seen()}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		s, was := all[id], f.marks[id]
		if s.said != was.said {
			out.Runners = append(out.Runners, s.row)
		} else if s.beat != was.beat {
			out.Beats[id] = s.beat
		}
	}
	f.marks = marksOf(all)
	if len(out.Runners) > maxFeedRows {
		out.Runners, out.Beats, out.Stale = nil, nil, true
	}
	if out.Stale || len(out.Runners)+len(out.Beats) > 0 {
		st.put("", "presence", out)
	}
}
