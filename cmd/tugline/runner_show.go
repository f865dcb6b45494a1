package main

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) runnerListCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "Runners: slots, health, and whether they are connected", Args: cobra.NoArgs,
		Long: `List the runners. SLOTS are those for people's jobs, AUTO those for automation: used of what is
offered now. DISK is what is free where jobs work, MEMORY what is available; ? is what is not
known, or not of the last minute. Below stands what keeps work away from a runner, if anything.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var rs api.Runners
			if done, err := a.answer(cmd.Context(), reading("/v1/runners", nil), &rs); done {
				return err
			}
			if len(rs.Runners) == 0 {
				fmt.Fprintln(a.out, "No runner is enrolled. Make a ticket with `tugline hub ticket`.")
				return nil
			}
			if err := a.runnerTable(rs.Runners, time.Now()); err != nil {
				return err
			}
			if text := seenText(&rs.Runners[0]); text != "" {
				a.say("%s", text)
			}
			return nil
		},
	})
}

func (a *app) runnerTable(rs []api.Runner, now time.Time) error {
	t := table{head: []string{"NAME", "STATE", "SLOTS", "AUTO", "DISK", "MEMORY", "DOCKER", "SYSTEM", "HARNESSES", "LABELS"}, full: !a.ttyOut}
	for _, r := range rs {
		disk, memory, docker := glance(&r.Health)
		state := runnerState(&r)
		if r.State != "online" && r.LastBeat != nil {
			state += " " + ago(now, r.LastBeat)
		}
		t.add(r.Name, state, fmt.Sprintf("%d/%d", r.Slots.Used-r.Slots.UsedAutomation, r.Slots.Offered), fmt.Sprintf("%d/%d", r.Slots.UsedAutomation, r.Slots.Effective),
			disk, memory, docker, r.OS+"/"+r.Arch, first(harnessNames(&r), "-"), labelText(r.Labels))
	}
	if err := t.print(a.out); err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range rs {
		if n := runnerNotes(&r, now); n != "" {
			a.paragraph(&b, "", line(r.Name)+": "+line(n))
		}
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

// glance tells a machine's health in three words; what is old is not known.
func glance(h *api.RunnerHealth) (disk, memory, docker string) {
	disk, memory, docker = "?", "?", "?"
	if h.Sample == nil || !h.Fresh {
		return disk, memory, docker
	}
	if v := h.Sample.Workspace; v.Known {
		disk = size(v.Free)
	}
	if m := h.Sample.Memory; m != nil && m.Available > 0 {
		memory = size(m.Available)
	}
	switch d := h.Sample.Docker; {
	case d.State == fleet.DockerAbsent:
		docker = "-"
	case d.State == fleet.DockerDown:
		docker = "down"
	case d.State == fleet.DockerReady && d.Compose == "":
		docker = "no compose"
	case d.State == fleet.DockerReady:
		docker = first(d.Version, "yes")
	}
	return disk, memory, docker
}

// seenText says who saw the runners' connections, "" where it was the hub that was asked.
func seenText(r *api.Runner) string {
	switch {
	case r.State == "unknown" && r.From == "":
		return "no node leads that this hub hears, so that nobody knows which runners are connected"
	case r.Age > 0:
		return fmt.Sprintf("as seen by hub node %s %s ago", r.From, span(time.Duration(r.Age)*time.Millisecond))
	}
	return ""
}

func runnerState(r *api.Runner) string {
	switch {
	case r.Hold == nil:
		return r.State
	case r.Hold.Drain:
		return r.State + ", draining"
	}
	return r.State + ", cordoned"
}

func harnessNames(r *api.Runner) string {
	var names []string
	for _, h := range r.Harnesses {
		n := h.Name
		if h.SignedIn == "no" {
			n += "(signed out)"
		}
		names = append(names, n)
	}
	return strings.Join(names, ",")
}

// runnerNotes tells what keeps work away from a runner, and what else its owner should
// know.
func runnerNotes(r *api.Runner, now time.Time) string {
	var notes []string
	add := func(texts ...string) {
		for _, n := range texts {
			if n != "" && !slices.Contains(notes, n) {
				notes = append(notes, n)
			}
		}
	}
	add(revokedText(r), r.Conflict, holdText(r.Hold, now), r.Declining)
	for _, f := range r.Health.Faults {
		add(faultText(&f))
	}
	add(r.Slots.LimitedBy...)
	add(r.Alerts...)
	return strings.Join(notes, "; ")
}

// holdText tells for how long a runner is held, and why.
func holdText(h *api.Hold, now time.Time) string {
	if h == nil {
		return ""
	}
	text := "given no new work"
	if h.Drain {
		text = "finishes what it has"
	}
	if h.Until != nil {
		text += " until " + when(now, *h.Until)
	}
	if d := h.Deadline; d != nil {
		switch at := when(now, *d); {
		case h.Cancel && h.Passed:
			text += ", what ran was cancelled at the deadline " + at
		case h.Passed:
			text += ", the deadline " + at + " has passed"
		case h.Cancel:
			text += ", what runs at " + at + " is cancelled"
		default:
			text += ", what has not begun at " + at + " goes back to the queue"
		}
	}
	if h.Reason != "" {
		text += ": " + h.Reason
	}
	return text
}

// when tells a time to come by the clock, with how far away it is.
func when(now, t time.Time) string {
	text := t.Local().Format("15:04")
	if d := t.Sub(now); d >= 20*time.Hour || d <= -20*time.Hour {
		text = t.Local().Format("2006-01-02 15:04")
	}
	if d := t.Sub(now); d > 0 {
		text += " (in " + ahead(d) + ")"
	}
	return text
}

func faultText(f *fleet.Fault) string {
	names := map[fleet.FaultKind]string{fleet.FaultDisk: "low disk", fleet.FaultMemory: "low memory", fleet.FaultDocker: "Docker lost", fleet.FaultOffline: "offline"}
	return strings.TrimSuffix(first(names[f.Kind], string(f.Kind))+": "+f.Detail, ": ")
}

// revokedText says how a runner whose key was revoked comes back, "" of others.
func revokedText(r *api.Runner) string {
	if r.State != "revoked" {
		return ""
	}
	return "its key was revoked; `tugline hub ticket --for " + r.Name + "` lets it enrol anew"
}

func labelText(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ",")
}

func (a *app) runnerGetCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "get RUNNER", Aliases: []string{"show"}, Short: "One runner, by name or id", Args: exactly("RUNNER"), ValidArgsFunction: a.completeRunners,
		RunE: func(cmd *cobra.Command, args []string) error {
			var r api.Runner
			if done, err := a.answer(cmd.Context(), reading("/v1/runners/"+url.PathEscape(args[0]), nil), &r); done {
				return err
			}
			a.describeRunner(&r, time.Now())
			return nil
		},
	})
}

func (a *app) describeRunner(r *api.Runner, now time.Time) {
	fmt.Fprintf(a.out, "runner %s %s (%s)\n", line(r.Name), runnerState(r), r.ID)
	show := func(name, value string) {
		if value = line(value); value != "" {
			fmt.Fprintf(a.out, "  %-12s %s\n", name, value)
		}
	}
	show("heartbeat", strings.TrimSpace(ago(now, r.LastBeat)+" "+r.Transport))
	show("address", r.Address)
	show("seen", seenText(r))
	show("held", heldText(r.Hold, now))
	a.describeSlots(&r.Slots, show)
	show("declines", r.Declining)
	describeHealth(&r.Health, now, show)
	show("system", r.OS+"/"+r.Arch+", tugline "+r.Version)
	show("ring", string(r.Ring))
	show("update", updateText(r))
	for i := range r.Provisioning {
		show("installation", provisionText(&r.Provisioning[i]))
	}
	show("permissions", "up to "+string(r.Permissions))
	show("labels", labelText(r.Labels))
	show("enrolled", ago(now, &r.EnrolledAt))
	show("revoked", revokedText(r))
	show("conflict", r.Conflict)
	for _, n := range r.Alerts {
		show("alert", n)
	}
	for _, h := range r.Harnesses {
		show("harness", harnessText(&h))
	}
	for _, j := range r.Jobs {
		show("job", string(j))
	}
}

func heldText(h *api.Hold, now time.Time) string {
	text := holdText(h, now)
	if h == nil || h.Actor == "" {
		return text
	}
	return fmt.Sprintf("%s (by %s, %s)", text, first(h.ActorName, h.Actor), ago(now, &h.Since))
}

func (a *app) describeSlots(s *api.Slots, show func(name, value string)) {
	manual := fmt.Sprintf("%d of %d used", s.Used-s.UsedAutomation, s.Offered)
	if s.Offered != s.Base {
		manual += fmt.Sprintf(", %d set by its owner", s.Base)
	}
	auto := fmt.Sprintf("%d of %d used", s.UsedAutomation, s.Effective)
	if s.Effective != s.Automation {
		auto += fmt.Sprintf(", %d set on the hub", s.Automation)
	}
	show("slots", manual)
	show("automation", auto)
	for _, l := range s.LimitedBy {
		show("limited by", l)
	}
}

// describeHealth shows how a machine was at its last sample.
func describeHealth(h *api.RunnerHealth, now time.Time, show func(name, value string)) {
	if h.Sample == nil {
		show("health", "not known: no sample was heard")
	} else {
		text := map[string]string{api.HealthOK: "ok", api.HealthFaulty: "in trouble", api.HealthUnknown: "not known now"}[h.Class]
		if h.AgeMS != nil {
			text += ", as of " + span(time.Duration(*h.AgeMS)*time.Millisecond) + " ago"
		}
		show("health", text)
	}
	for _, f := range h.Faults {
		show("fault", faultText(&f)+" (since "+roughly(now.Sub(f.Since))+")")
	}
	s := h.Sample
	if s == nil {
		return
	}
	show("disk", volumeText(&s.Workspace))
	if s.Cache.Path != s.Workspace.Path || s.Cache.Free != s.Workspace.Free {
		show("cache", volumeText(&s.Cache))
	}
	var takes []string
	for _, u := range s.Usage {
		if len(takes) < 4 && u.Bytes >= 1<<20 {
			takes = append(takes, u.Class+" "+size(u.Bytes))
		}
	}
	if len(takes) > 0 {
		show("on the disk", strings.Join(takes, ", "))
	}
	if s.Reserved > 0 {
		show("reserved", size(s.Reserved)+" of the disk, for jobs that have not used it yet")
	}
	if m := s.Memory; m != nil {
		available := "? available"
		if m.Available > 0 {
			available = size(m.Available) + " available"
		}
		show("memory", available+" of "+size(m.Total))
	}
	if c := s.CPU; c != nil {
		show("load", fmt.Sprintf("%.2f on %s, %.0f%% used%s", c.Load, plural(c.Count, "processor", "processors"), 100*c.Used, pressed(c.Pressure)))
	}
	if io := s.IO; io != nil {
		show("disk busy", fmt.Sprintf("%.0f%%%s", 100*io.Busy, pressed(io.Pressure)))
	}
	if p := s.Power; p != nil {
		text := "mains"
		if p.OnBattery {
			text = "battery"
		}
		if p.Percent >= 0 {
			text += fmt.Sprintf(", %d%% charged", p.Percent)
		}
		show("power", text)
	}
	show("docker", dockerText(&s.Docker))
	up := ""
	if s.Uptime > 0 {
		up = "up " + span(s.Uptime)
	}
	if s.Zone != "" {
		up += ", time zone " + s.Zone
	}
	show("machine", strings.TrimPrefix(up, ", "))
}

func pressed(percent float64) string {
	if percent < 1 {
		return ""
	}
	return fmt.Sprintf(", work waited %.0f%% of the time", percent)
}

func volumeText(v *fleet.Volume) string {
	if !v.Known {
		return strings.TrimSuffix("not known: "+v.Detail, ": ")
	}
	text := size(v.Free) + " free"
	if v.Total > 0 {
		text += " of " + size(v.Total)
	}
	if v.Path != "" {
		text += " at " + v.Path
	}
	if v.Inodes >= 0 && v.Nodes > 0 && v.Inodes < v.Nodes/20 {
		text += fmt.Sprintf(", only %s of %s inodes", count(v.Inodes), count(v.Nodes))
	}
	return text
}

func dockerText(d *fleet.Docker) string {
	why := strings.TrimSuffix(": "+d.Detail, ": ")
	switch d.State {
	case fleet.DockerAbsent:
		return "not there" + why
	case fleet.DockerDown:
		return "does not answer" + why
	case fleet.DockerReady:
		text := strings.TrimSpace(d.Version)
		if d.Compose == "" {
			return strings.TrimPrefix(text+", Compose does not answer"+why, ", ")
		}
		text = strings.TrimPrefix(text+", Compose "+d.Compose, ", ")
		if d.ComposeBy != "" {
			text += " (" + d.ComposeBy + ")"
		}
		if d.VerifiedAge > 0 {
			text += ", verified " + span(d.VerifiedAge) + " before the sample"
		}
		return text
	}
	return "not known" + why
}

func harnessText(h *fleet.HarnessInfo) string {
	text := strings.TrimSpace(h.Name+" "+h.Version) + signedWord(h.SignedIn)
	if h.Account != "" {
		text += ", account " + h.Account
	}
	if len(h.Models) > 0 {
		text += ", models " + strings.Join(h.Models, " ")
	}
	return strings.TrimSuffix(text+": "+h.Detail, ": ")
}

func signedWord(s string) string {
	switch s {
	case "no":
		return ", signed out"
	case "unknown":
		return ", signed in or not is unknown"
	}
	return ""
}
