package sched

import (
	"fmt"
	"slices"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// want is what a job asks of a runner. All of a job that decides whether a runner can
// take it, but for what the job was refused and by whom, is in it, so that it is worked
// out once for all jobs alike.
type want struct {
	bound    fleet.RunnerID // that holds the session; empty: none does
	on       string         // the runner asked for, by id or name, where none is bound
	origin   string         // kind of origin
	inRepo   bool
	repo     string // URL
	bundle   string // names the cache of a repository without one
	harness  string
	model    string
	agent    bool
	docker   bool
	needs    fleet.Needs
	require  string // see labels
	secrets  string // names, with line ends between
	fallback int    // the turn's place in the list of choices
}

// wantOf works out what a job asks for.
func wantOf(j *fleet.Job) want {
	t, s := j.Turn(), &j.Spec
	ch := j.ChoiceOf(t)
	w := want{
		bound: t.On, origin: s.Origin.Kind, harness: ch.Harness, model: ch.Model,
		agent: s.Kind == fleet.KindAgent, docker: j.Learned != nil && j.Learned.Docker, fallback: t.Choice,
	}
	if w.origin == "" {
		w.origin = fleet.Manual
	}
	if w.bound == "" {
		w.on = s.On
	}
	if s.Repo != nil {
		if w.inRepo, w.repo = true, s.Repo.URL; w.repo == "" {
			w.bundle = s.Repo.CacheKey
		}
	}
	if s.Needs != nil {
		w.needs = *s.Needs
		w.docker = w.docker || w.needs.Docker
		if ch.Harness != s.Harness {
			w.needs.HarnessVersion = "" // of the harness that was asked for; another one counts in its own way
		}
	}
	if len(s.Require) > 0 {
		w.require = labels(s.Require)
	}
	if len(s.Secrets) > 0 {
		w.secrets = strings.Join(s.Secrets, "\n")
	}
	return w
}

// labels writes required labels so that equal ones are equal texts.
func labels(require map[string]string) string {
	var room [8]string
	all := room[:0]
	for k, v := range require {
		all = append(all, k+"="+v)
	}
	if len(all) == 1 {
		return all[0]
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func (w *want) automated() bool { return w.origin == fleet.Automation }

// cacheOf names the cache of the job's repository on whatever runner has one.
func (w *want) cacheOf() string {
	if !w.inRepo {
		return ""
	}
	return (&fleet.Repo{URL: w.repo, CacheKey: w.bundle}).CacheOf()
}

// choice says what the job is to be run with.
func (w *want) choice() fleet.Choice { return fleet.Choice{Harness: w.harness, Model: w.model} }

// asks says whether the want names this runner: by the session that it holds, or because
// somebody asked for it.
func (w *want) asks(r *fleet.Runner) bool {
	if w.bound != "" {
		return w.bound == r.ID
	}
	return w.on == r.Name || w.on == string(r.ID)
}

// lacks gives the first required label that the runner does not carry.
func (w *want) lacks(r *fleet.Runner) (label string, lacks bool) {
	for rest, more := w.require, w.require != ""; more; {
		label, rest, more = strings.Cut(rest, "\n")
		k, v, _ := strings.Cut(label, "=")
		if have, ok := r.Labels[k]; !ok || have != v {
			return label, true
		}
	}
	return "", false
}

// hidden gives the first secret that the runner's owner has not put there.
func (w *want) hidden(f *fleet.RunnerFacts) (name string, hidden bool) {
	for rest, more := w.secrets, w.secrets != ""; more; {
		name, rest, more = strings.Cut(rest, "\n")
		if !slices.Contains(f.Secrets, name) {
			return name, true
		}
	}
	return "", false
}

// system says which operating system and processor are asked for.
func (w *want) system() string {
	switch {
	case w.needs.OS == "":
		return w.needs.Arch
	case w.needs.Arch == "":
		return w.needs.OS
	}
	return fmt.Sprintf("%s/%s", w.needs.OS, w.needs.Arch)
}
