package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) alertsCommand() *cobra.Command {
	var runner string
	var limit int
	c := &cobra.Command{
		Use: "alerts", Short: "What was told of faults of runners, newest first", GroupID: groupLook, Args: cobra.NoArgs,
		Long: `List the alerts: low disk or memory, Docker lost, a runner offline, each of them over again, storage
pressure with what fills the disk, and work that no runner that is there could take. One fault of
one machine is told once, and again no sooner than after 30 minutes.
` + "`tugline hub set alert_webhook URL`" + ` has them posted somewhere too; storage pressure, which is listed
every 5 minutes while a disk is full, every 30.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > fleet.MaxAlerts {
				return usage("--limit %d is not from 1 to %d", limit, fleet.MaxAlerts)
			}
			if err := given(cmd, "runner"); err != nil {
				return err
			}
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			if runner != "" {
				q.Set("runner", runner)
			}
			var as api.Alerts
			if done, err := a.answer(cmd.Context(), reading("/v1/alerts", q), &as); done {
				return err
			}
			if len(as.Alerts) == 0 {
				fmt.Fprintln(a.out, "No alerts.")
				return nil
			}
			t := table{head: []string{"TIME", "KIND", "RUNNER", "WHAT"}, full: !a.ttyOut}
			for _, al := range as.Alerts {
				t.add(al.At.Local().Format("2006-01-02 15:04:05"), strings.ReplaceAll(al.Kind, "_", " "), first(al.Name, string(al.Runner), "-"), alertText(&al))
			}
			return t.print(a.out)
		},
	}
	c.Flags().StringVar(&runner, "runner", "", "only alerts about this `RUNNER`")
	c.Flags().IntVar(&limit, "limit", 50, "at most `N`, up to 1000")
	c.RegisterFlagCompletionFunc("runner", a.completeRunnerFlag)
	return a.jsonFlag(c)
}

// alertText tells what an alert is about, without the runner's name that it begins with.
func alertText(al *fleet.Alert) string {
	text := strings.TrimPrefix(al.Text, al.Name+": ")
	if p := al.Pressure; p != nil && len(p.Usage) > 0 && !strings.Contains(text, p.Usage[0].Class) {
		var parts []string
		for _, u := range p.Usage[:min(len(p.Usage), 4)] {
			parts = append(parts, u.Class+" "+size(u.Bytes))
		}
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	if al.Failed != "" {
		text += "; the webhook was given up: " + al.Failed
	}
	return text
}
