package web

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

type runnersIn struct {
	State   string `query:"state" doc:"only runners in this state, or in one of several with commas between: online, stale, offline, refused, revoked, unknown"`
	Health  string `query:"health" enum:"ok,faulty,unknown"`
	Held    bool   `query:"held" doc:"only runners that are cordoned or drained"`
	Harness string `query:"harness" doc:"only runners that have it"`
	Ring    string `query:"ring" enum:"canary,early,all"`
	Q       string `query:"q" maxLength:"200" doc:"only runners with this text, in either case, in their id, name, state, labels, version, system, address or agents"`
	Sort    string `query:"sort" enum:"id,name,state,heartbeat,used,free,memory,load,version,-id,-name,-state,-heartbeat,-used,-free,-memory,-load,-version" default:"id" doc:"with a dash the greatest first; what is not known comes last"`
	Offset  int    `query:"offset" minimum:"0" doc:"so many of them are passed over"`
	Limit   int    `query:"limit" minimum:"0" maximum:"1000" doc:"0: all"`
}

var runnerStates = []string{"online", "stale", "offline", "refused", "revoked", "unknown"}

// listRunners gives runners, or a page of them.
func (s *Server) listRunners(_ context.Context, in *runnersIn) (*struct{ Body api.Runners }, error) {
	var states []string
	if in.State != "" {
		states = strings.Split(in.State, ",")
	}
	for _, st := range states {
		if !slices.Contains(runnerStates, st) {
			return nil, wrong(fleet.BadRequest, "there is no state %s of a runner; the states are %s", quote(st), strings.Join(runnerStates, ", "))
		}
	}
	v, present := s.cfg.Log.View(), s.present()
	all, q := []api.Runner{}, strings.ToLower(in.Q)
	for _, r := range v.Runners() {
		row := s.showRunner(v, r, present[r.ID])
		switch {
		case states != nil && !slices.Contains(states, row.State),
			in.Health != "" && row.Health.Class != in.Health,
			in.Held && row.Hold == nil,
			in.Ring != "" && string(row.Ring) != in.Ring,
			in.Harness != "" && !slices.ContainsFunc(row.Harnesses, func(h fleet.HarnessInfo) bool { return h.Name == in.Harness }),
			q != "" && !runnerMentions(&row, q):
			continue
		}
		all = append(all, row)
	}
	sortRunners(all, in.Sort)
	out := api.Runners{Total: len(all), Runners: all[min(in.Offset, len(all)):]}
	if in.Limit > 0 && len(out.Runners) > in.Limit {
		out.Runners = out.Runners[:in.Limit]
	}
	return &struct{ Body api.Runners }{out}, nil
}

// runnerMentions says whether a runner has a text, which is in lower case.
func runnerMentions(r *api.Runner, text string) bool {
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	if has(string(r.ID)) || has(r.Name) || has(r.State) || has(r.Version) || has(r.OS+"/"+r.Arch) || has(r.Address) {
		return true
	}
	for k, v := range r.Labels {
		if has(k + "=" + v) {
			return true
		}
	}
	return slices.ContainsFunc(r.Harnesses, func(h fleet.HarnessInfo) bool { return has(h.Name + " " + h.Version) })
}

// sortRunners puts runners into an order; those that are equal in it stay by id.
func sortRunners(all []api.Runner, by string) {
	name, down := strings.CutPrefix(by, "-")
	order := runnerOrders[name]
	if order == nil { // as they come
		if down {
			slices.Reverse(all)
		}
		return
	}
	slices.SortStableFunc(all, func(a, b api.Runner) int { return order(&a, &b, down) })
}

// runnerOrders compare two runners by what a person may sort them by.
var runnerOrders = map[string]func(a, b *api.Runner, down bool) int{
	"name":      byKnown(func(r *api.Runner) (string, bool) { return r.Name, true }),
	"state":     byKnown(func(r *api.Runner) (int, bool) { return slices.Index(runnerStates, r.State), true }),
	"version":   byKnown(func(r *api.Runner) (string, bool) { return r.Version, r.Version != "" }),
	"used":      byKnown(func(r *api.Runner) (int, bool) { return r.Slots.Used, true }),
	"heartbeat": byKnown(func(r *api.Runner) (int64, bool) { return beatOf(r).UnixNano(), r.LastBeat != nil }),
	"free":      byHealth(func(h *fleet.Health) (float64, bool) { return float64(h.Workspace.Free), h.Workspace.Known }),
	"memory": byHealth(func(h *fleet.Health) (float64, bool) {
		if h.Memory == nil || h.Memory.Available == 0 {
			return 0, false
		}
		return float64(h.Memory.Available), true
	}),
	"load": byHealth(func(h *fleet.Health) (float64, bool) {
		if h.CPU == nil {
			return 0, false
		}
		return h.CPU.Load, true
	}),
}

// byKnown compares by a value; a runner of which it is not known comes last either way.
func byKnown[T cmp.Ordered](of func(*api.Runner) (T, bool)) func(a, b *api.Runner, down bool) int {
	return func(a, b *api.Runner, down bool) int {
		x, okX := of(a)
		y, okY := of(b)
		switch {
		case okX != okY && okX:
			return -1
		case okX != okY:
			return 1
		case down:
			return cmp.Compare(y, x)
		}
		return cmp.Compare(x, y)
	}
}

// byHealth compares by a figure of the last sample.
func byHealth(of func(*fleet.Health) (float64, bool)) func(a, b *api.Runner, down bool) int {
	return byKnown(func(r *api.Runner) (float64, bool) {
		if r.Health.Sample == nil {
			return 0, false
		}
		return of(r.Health.Sample)
	})
}

func beatOf(r *api.Runner) time.Time {
	if r.LastBeat == nil {
		return time.Time{}
	}
	return *r.LastBeat
}
