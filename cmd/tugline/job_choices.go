package main

import (
	"fmt"
	"strings"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// choiceFacts tell with what an agent's job runs and how it came to it, what it needs,
// and how much of its budget of executions is used.
func choiceFacts(j *api.Job, now time.Time) (fs []fact) {
	fs = append(fs, fact{name: "model", value: modelLine(j), long: true})
	for _, m := range j.Transitions {
		text := fmt.Sprintf("%s → %s after %s of attempt %d", m.From, m.To, spaced(string(m.Class)), m.Attempt)
		for _, s := range m.Skipped {
			text += ", past " + s.String()
		}
		fs = append(fs, fact{name: "moved on", value: line(text + " at " + m.At.Local().Format("15:04:05"))})
	}
	var next []string
	for _, c := range j.Spec.Fallbacks[min(max(j.Choice, 0), len(j.Spec.Fallbacks)):] {
		next = append(next, c.String())
	}
	fs = append(fs, fact{name: "fallbacks", value: line(strings.Join(next, ", ")), long: true},
		fact{name: "needs", value: needsLine(j), long: true})
	if p := j.Spec.Priority; p != 0 {
		fs = append(fs, fact{name: "priority", value: fmt.Sprintf("%+d", p), long: true})
	}
	if j.Budget.Of > 0 {
		text := fmt.Sprintf("%d of %d used", j.Budget.Used, j.Budget.Of)
		if j.NotBefore != nil && j.NotBefore.After(now) {
			text += ", the next not before " + when(now, *j.NotBefore)
		}
		fs = append(fs, fact{name: "executions", value: text, long: true})
	}
	return fs
}

func spaced(s string) string { return strings.ReplaceAll(s, "_", " ") }

// modelLine tells the model that was asked for, the one that the agent was started with
// and the one that it reported, none in the place of another.
func modelLine(j *api.Job) string {
	if j.Kind != fleet.KindAgent || j.Requested.Harness == "" {
		return ""
	}
	named := func(c fleet.Choice) string {
		if c.Model == "" {
			return c.Harness + " with its own default"
		}
		return c.String()
	}
	return line(fmt.Sprintf("asked for %s; effective %s; reported %s", named(j.Requested), named(j.Effective), first(j.ReportedModel, "none yet")))
}

func needsLine(j *api.Job) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if n := j.Spec.Needs; n != nil {
		if sys := strings.Trim(n.OS+"/"+n.Arch, "/"); sys != "" {
			add("%s", sys)
		}
		if n.HarnessVersion != "" {
			add("%s %s or newer", j.Requested.Harness, n.HarnessVersion)
		}
		if n.Docker {
			add("Docker with Compose")
		}
		if n.Disk > 0 {
			add("%s of disk", size(n.Disk))
		}
		if n.Memory > 0 {
			add("%s of memory", size(n.Memory))
		}
	}
	if len(j.Spec.Require) > 0 {
		add("labels %s", labelText(j.Spec.Require))
	}
	if j.Learned != nil && j.Learned.Docker && (j.Spec.Needs == nil || !j.Spec.Needs.Docker) {
		add("Docker with Compose, as an attempt showed that failed for want of it")
	}
	return line(strings.Join(parts, ", "))
}

// attemptText tells of one attempt: what it ran with, and how it ended.
func attemptText(at *api.Attempt, now time.Time) string {
	parts := []string{string(at.State)}
	if at.Class != "" && at.Class != fleet.ClassOK {
		parts[0] += ", " + spaced(string(at.Class))
	} else if at.Code != "" {
		parts[0] += ", " + spaced(string(at.Code))
	}
	if at.Harness != "" && at.Harness != "exec" {
		with := at.Harness
		if at.Effective != "" {
			with += ":" + at.Effective
		}
		if at.Reported != "" && at.Reported != at.Effective {
			with += " (" + at.Reported + " reported)"
		}
		parts = append(parts, with)
	}
	if at.RetryAfter != nil {
		parts = append(parts, "limited until "+when(now, *at.RetryAfter))
	}
	if at.StartedAt != nil && at.FinishedAt != nil {
		parts = append(parts, "took "+span(at.FinishedAt.Sub(*at.StartedAt)))
	}
	if !at.Counts && at.StartedAt != nil {
		parts = append(parts, "cost nothing")
	}
	return line(strings.TrimSuffix(strings.Join(parts, ", ")+": "+at.Detail, ": "))
}
