package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// chartWidth is how many bars a line of the history has.
const chartWidth = 40

func (a *app) runnerHealthCommand() *cobra.Command {
	var window string
	c := &cobra.Command{
		Use: "health RUNNER", Short: "How a runner's machine has been lately", Args: exactly("RUNNER"), ValidArgsFunction: a.completeRunners,
		Long: `Show how a runner's machine has been in the last hour or day: one bar is the mean of a fortieth of
it, higher for more, and blank where nothing was heard. The samples are in the memory of the hub
node that leads: one that began to a moment ago has none from before.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("window", window, "1h", "24h"); err != nil {
				return err
			}
			var h api.HealthHistory
			if done, err := a.answer(cmd.Context(), reading(runnerPath(args[0], "/health"), url.Values{"window": {window}}), &h); done {
				return err
			}
			a.healthChart(&h, time.Now())
			return nil
		},
	}
	c.Flags().StringVar(&window, "window", "1h", "how far back, `W`: 1h or 24h")
	c.RegisterFlagCompletionFunc("window", cobra.FixedCompletions([]cobra.Completion{"1h", "24h"}, cobra.ShellCompDirectiveNoFileComp))
	return a.jsonFlag(c)
}

// healthChart draws the history of a machine, one line a figure.
func (a *app) healthChart(h *api.HealthHistory, now time.Time) {
	name := line(first(h.Name, string(h.Runner)))
	defer a.faultLines(h.Changes)
	if len(h.Points) == 0 {
		fmt.Fprintf(a.out, "nothing was heard of runner %s in the last %s; `tugline runner get %s` shows its last sample\n", name, h.Window, name)
		return
	}
	window, err := time.ParseDuration(h.Window)
	if err != nil {
		window = time.Hour
	}
	last := h.Points[len(h.Points)-1]
	fmt.Fprintf(a.out, "runner %s, the last %s: %s, the newest %s\n", name, h.Window, plural(len(h.Points), "sample", "samples"), ago(now, &last.At))
	whole := func(get func(*api.HealthPoint) *int64) func(*api.HealthPoint) *float64 {
		return func(p *api.HealthPoint) *float64 {
			n := get(p)
			if n == nil {
				return nil
			}
			f := float64(*n)
			return &f
		}
	}
	bytes := func(f float64) string { return size(int64(f)) }
	percent := func(f float64) string { return fmt.Sprintf("%.0f%%", 100*f) }
	for _, l := range []struct {
		name string
		get  func(*api.HealthPoint) *float64
		tell func(float64) string
		top  float64 // of the chart; 0: the greatest there is
	}{
		{"disk free", whole(func(p *api.HealthPoint) *int64 { return p.Free }), bytes, 0},
		{"cache free", whole(func(p *api.HealthPoint) *int64 { return p.CacheFree }), bytes, 0},
		{"memory", whole(func(p *api.HealthPoint) *int64 { return p.Memory }), bytes, 0},
		{"load", func(p *api.HealthPoint) *float64 { return p.Load }, func(f float64) string { return fmt.Sprintf("%.2f", f) }, 0},
		{"cpu", func(p *api.HealthPoint) *float64 { return p.CPU }, percent, 1},
		{"disk busy", func(p *api.HealthPoint) *float64 { return p.IO }, percent, 1},
		{"docker", func(p *api.HealthPoint) *float64 {
			f := 0.0
			if p.Docker == fleet.DockerReady {
				f = 1
			}
			return &f
		}, func(f float64) string { return map[bool]string{true: "ready", false: "not ready"}[f == 1] }, 1},
	} {
		a.chartLine(h.Points, now.Add(-window), window, l.name, l.get, l.tell, l.top)
	}
}

// faultLines tells which faults began and ended.
func (a *app) faultLines(cs []fleet.ClassChange) {
	for _, c := range cs {
		what := faultText(&fleet.Fault{Kind: c.Kind, Detail: c.Text})
		if !c.On {
			what = faultText(&fleet.Fault{Kind: c.Kind}) + " is over" + strings.TrimSuffix(": "+c.Text, ": ")
		}
		fmt.Fprintf(a.out, "  %s  %s\n", c.At.Local().Format("01-02 15:04:05"), line(what))
	}
}

// chartLine draws one figure; one that was never known is left out.
func (a *app) chartLine(ps []api.HealthPoint, from time.Time, window time.Duration, name string, get func(*api.HealthPoint) *float64, tell func(float64) string, top float64) {
	var sum, n [chartWidth]float64
	var least, most, last float64
	some := false
	for i := range ps {
		v := get(&ps[i])
		at := int(chartWidth * ps[i].At.Sub(from) / max(window, 1))
		if v == nil {
			continue
		}
		k := min(max(at, 0), chartWidth-1)
		sum[k], n[k] = sum[k]+*v, n[k]+1
		if !some {
			least, most = *v, *v
		}
		least, most, last, some = min(least, *v), max(most, *v), *v, true
	}
	if !some {
		return
	}
	if top == 0 {
		top = most
	}
	const bars = "▁▂▃▄▅▆▇█"
	steps := []rune(bars)
	var b strings.Builder
	for k := range sum {
		switch {
		case n[k] == 0:
			b.WriteByte(' ')
		case top <= 0:
			b.WriteRune(steps[0])
		default:
			b.WriteRune(steps[min(int(sum[k]/n[k]/top*float64(len(steps))), len(steps)-1)])
		}
	}
	text := tell(last)
	switch {
	case least != most && name == "docker":
		text += ", not all the time"
	case least != most:
		text += fmt.Sprintf(" (%s to %s)", tell(least), tell(most))
	}
	fmt.Fprintf(a.out, "  %-11s %s  %s\n", name, b.String(), text)
}
