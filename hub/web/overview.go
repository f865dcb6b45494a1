package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/circuit"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// Bounds of an overview.
const (
	maxCircuitsShown = 100
	maxConcerns      = 200
)

func (s *Server) overviewRoutes() {
	huma.Register(s.api, op(http.MethodGet, "/v1/overview", "get-overview", "How the fleet is, and what somebody should look at", fleet.RoleViewer), wrap(s, func(context.Context, *struct{}) (*struct{ Body api.Overview }, error) {
		return &struct{ Body api.Overview }{s.overview(s.cfg.Log.View())}, nil
	}))
}

func (s *Server) overview(v state.View) api.Overview {
	st := s.cfg.Status()
	out := api.Overview{
		At: now().UTC(), Cluster: v.Meta().Cluster, Leader: st.Leader, Hubs: max(1, len(v.Nodes())), Seen: s.seen(),
		Runners: api.OverviewFleet{States: map[string]int{}}, Jobs: map[string]int{}, Circuits: []api.Circuit{}, Concerns: []api.Concern{},
	}
	concerned := concerns{}
	if st.Leader == "" {
		concerned.add(api.Concern{Kind: "no_leader", Text: "no hub node leads: nothing new begins and nothing is recorded", Link: "/hubs"})
	}
	for _, w := range st.Warnings {
		concerned.add(api.Concern{Kind: "setting", Text: w, Link: "/settings"})
	}
	present := s.present()
	for _, r := range v.Runners() {
		row := s.showRunner(v, r, present[r.ID])
		countRunner(&out, &row)
		concerned.ofRunner(&row)
	}
	s.overviewJobs(v, &out, &concerned)
	for _, c := range v.Circuits() {
		if circuit.At(c, s.time(v)) != fleet.CircuitClosed && len(out.Circuits) < maxCircuitsShown {
			out.Circuits = append(out.Circuits, s.showCircuit(v, c))
		}
	}
	for _, rel := range v.Releases() {
		if rel.Halted != "" {
			concerned.add(api.Concern{Kind: "release_halted", Text: "release " + rel.Version + " is halted at " + string(rel.Ring) + ": " + rel.Halted, Since: utc(&rel.Since), Link: "/releases"})
		}
	}
	concerned.unserved(v)
	out.Concerns, out.More = concerned.gravest()
	return out
}

// countRunner takes a runner into the sums.
func countRunner(o *api.Overview, r *api.Runner) {
	o.Runners.Total++
	o.Runners.States[r.State]++
	if r.Hold != nil {
		o.Runners.Held++
	}
	if len(r.Health.Faults) > 0 {
		o.Runners.Faulty++
	}
	if r.Declining != "" {
		o.Runners.Waiting++
	}
	o.Manual.Set += r.Slots.Base
	o.Manual.Offered += r.Slots.Offered
	o.Manual.Used += r.Slots.Used - r.Slots.UsedAutomation
	o.Auto.Set += r.Slots.Automation
	o.Auto.Offered += r.Slots.Effective
	o.Auto.Used += r.Slots.UsedAutomation
}

// overviewJobs counts jobs. Those that have not ended are counted whole: they are queued,
// or an attempt of theirs is open.
func (s *Server) overviewJobs(v state.View, out *api.Overview, concerned *concerns) {
	out.Queue.Depth = v.Count("queued")
	v.Queue(func(j *fleet.Job) bool {
		if at := j.Turn().QueuedAt; out.Queue.Oldest == nil || at.Before(*out.Queue.Oldest) {
			out.Queue.Oldest, out.Queue.Job = utc(&at), j.ID
		}
		return true
	})
	counted := map[fleet.JobID]bool{}
	v.Open(func(o state.Open) bool {
		j := o.Job
		if j.State.Ended() && j.State != fleet.Lost || j.State == fleet.Queued || counted[j.ID] {
			return true
		}
		counted[j.ID] = true
		out.Jobs[string(j.State)]++
		if j.State == fleet.Lost {
			concerned.add(api.Concern{Kind: "lost_job", Text: "job " + string(j.ID) + " is lost: " + j.Reason.Detail, Since: utc(&j.Reason.Since), Job: j.ID, Link: "/jobs/" + string(j.ID)})
		}
		return true
	})
	if out.Queue.Depth > 0 {
		out.Jobs[string(fleet.Queued)] = out.Queue.Depth
	}
	n := 0
	v.Jobs("", func(j *fleet.Job) bool {
		if (j.State == fleet.NeedsReview || j.State == fleet.Blocked) && !counted[j.ID] {
			out.Jobs[string(j.State)]++
		}
		n++
		return n < 10_000
	})
}

// concerns are what somebody should look at.
type concerns struct{ all []api.Concern }

func (c *concerns) add(one api.Concern) { c.all = append(c.all, one) }

// gravity orders kinds of concern, the gravest first.
var gravity = []string{"no_leader", "lost_job", "unserved", "disk", "docker", "refused", "offline", "memory", "update_failed", "release_halted", "setting"}

// gravest gives as many as are told, and how many there are beside them.
func (c *concerns) gravest() (told []api.Concern, more int) {
	told = append([]api.Concern{}, c.all...)
	since := func(x api.Concern) time.Time {
		if x.Since == nil {
			return time.Time{}
		}
		return *x.Since
	}
	slices.SortFunc(told, func(a, b api.Concern) int {
		return cmp.Or(slices.Index(gravity, a.Kind)-slices.Index(gravity, b.Kind), since(b).Compare(since(a)), strings.Compare(a.Link+a.Text, b.Link+b.Text))
	})
	more = max(0, len(told)-maxConcerns)
	return told[:len(told)-more], more
}

// ofRunner adds what is wrong with a runner now.
func (c *concerns) ofRunner(r *api.Runner) {
	add := func(kind, text string, since *time.Time) {
		c.add(api.Concern{Kind: kind, Text: r.Name + " " + text, Since: since, Runner: r.ID, Name: r.Name, Link: "/runners/" + string(r.ID)})
	}
	for _, f := range r.Health.Faults {
		text := map[fleet.FaultKind]string{
			fleet.FaultDisk: "has little room on its disk", fleet.FaultMemory: "has little memory left", fleet.FaultDocker: "has lost its Docker daemon", fleet.FaultOffline: "is silent",
		}[f.Kind]
		if f.Detail != "" {
			text += ": " + f.Detail
		}
		add(string(f.Kind), text, utc(&f.Since))
	}
	if r.Conflict != "" {
		add("refused", "is refused: "+r.Conflict, nil)
	}
	if u := r.Update; u != nil && (u.State == "failed" || u.State == "rolled_back") {
		add("update_failed", fmt.Sprintf("could not be updated to %s: %s", u.To, u.Why), nil)
	}
}

// unserved adds work that nobody does, as people were told of it, for as long as it waits.
func (c *concerns) unserved(v state.View) {
	told := map[fleet.JobID]bool{}
	for _, a := range v.Alerts(fleet.MaxAlerts) {
		parts := strings.Split(a.ID, "-") // kind, runner, job, turn: see hub/unserved.go
		if a.Kind != state.AlertUnserved || len(parts) < 4 {
			continue
		}
		id := fleet.JobID(parts[len(parts)-2])
		j, ok := v.Job(id)
		if !ok || j.State != fleet.Queued || fmt.Sprint(j.Turn().N) != parts[len(parts)-1] || told[id] {
			continue
		}
		told[id] = true
		c.add(api.Concern{Kind: "unserved", Text: a.Text, Since: utc(&a.At), Runner: a.Runner, Name: a.Name, Job: id, Link: "/jobs/" + string(id)})
	}
}
