package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) hubCommand() *cobra.Command {
	return group("hub", "The hub: run one, look at it, let runners join", groupMesh,
		a.hubRunCommand(), a.hubTicketCommand(), a.hubStatusCommand(), a.hubReadyCommand(), a.hubDoctorCommand(), a.hubSetCommand(), a.hubAuditCommand(), a.hubTimeCommand(),
		a.hubMembersCommand(), a.hubRemoveCommand(), a.hubTransferCommand(), a.hubDrainCommand(), a.hubKeysCommand(), a.hubRotateCommand(),
		a.hubReleaseCommand(), a.hubBackupCommand(), a.hubRestoreCommand(), a.hubRecoverCommand(), a.hubDumpCommand())
}

func (a *app) hubTicketCommand() *cobra.Command {
	var ttl time.Duration
	var b api.TicketRequest
	var labels []string
	c := &cobra.Command{
		Use: "ticket", Short: "Make a join ticket for runners, or for a hub node", Args: cobra.NoArgs,
		Long: `Make a ticket with which runners enrol, or with --role hub one with which a machine becomes a
hub node. It is shown once. On a terminal the whole command to paste is printed, elsewhere the
ticket alone. A node that lost its disk comes back as a new one: --replace names the old.`,
		Example: "  tugline hub ticket --ttl 1h --uses 5 --label site=berlin\n  tugline hub ticket --role hub\n  tugline hub ticket | ssh studio tugline runner run --ticket -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if b.Labels, err = pairs("label", labels); err != nil {
				return err
			}
			if ttl < time.Minute || ttl > 24*time.Hour {
				return usage("--ttl %s is not from 1m to 24h", ttl)
			}
			if b.Uses < 1 || b.Uses > 1000 {
				return usage("--uses %d is not from 1 to 1000", b.Uses)
			}
			if err := given(cmd, "for"); err != nil {
				return err
			}
			if b.Role != "runner" && b.Role != "hub" {
				return usage("--role %q is neither runner nor hub", b.Role)
			}
			if b.Replace != "" && b.Role != "hub" {
				return usage("--replace goes with --role hub")
			}
			if b.ViaMesh && b.Role == "hub" {
				return usage("--via-mesh is for runners; hub nodes come that way anyway")
			}
			b.TTL = ttl.String()
			var t api.Ticket
			if done, err := a.answer(cmd.Context(), request{method: http.MethodPost, path: "/v1/tickets", body: b, once: true, patience: actPatience}, &t); done {
				return err
			}
			if !a.ttyOut {
				_, err := fmt.Fprintln(a.out, t.Ticket)
				return err
			}
			fmt.Fprintf(a.out, "On the machine that is to join, within %s%s:\n\n", span(time.Until(t.ExpiresAt).Round(time.Minute)), times(t.Uses))
			if t.Install != "" {
				fmt.Fprintf(a.out, "%s\n\nor, where tugline is installed, in the foreground:\n\n", t.Install)
			}
			fmt.Fprintln(a.out, t.Command)
			return nil
		},
	}
	c.Flags().DurationVar(&ttl, "ttl", 15*time.Minute, "how long it holds, a `DURATION` up to 24h")
	c.Flags().StringVar(&b.Role, "role", "runner", "what may join by it, a `ROLE`: runner or hub")
	c.Flags().StringVar(&b.Replace, "replace", "", "hub `NODE` that goes when the new one comes")
	c.Flags().BoolVar(&b.ViaMesh, "via-mesh", false, "for runners that reach the hubs through their tunnel, over UDP alone")
	c.Flags().IntVar(&b.Uses, "uses", 1, "how many machines `N` may use it")
	c.Flags().StringArrayVar(&labels, "label", nil, "label `K=V` of the runners (repeatable)")
	c.Flags().StringVar(&b.For, "for", "", "a `RUNNER` that is to enrol anew under its id")
	c.RegisterFlagCompletionFunc("for", a.completeRunners)
	return a.jsonFlag(c)
}

func times(n int) string {
	if n == 1 {
		return ", once"
	}
	return fmt.Sprintf(", at most %d times", n)
}

func (a *app) hubStatusCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "status", Short: "The hub at a glance", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			var s api.Status
			raw, err := c.read(cmd.Context(), "/v1/status", nil, &s)
			if err != nil {
				return err
			}
			if a.json {
				return a.printRaw(raw)
			}
			a.describeHub(c.hub(), &s, time.Now())
			return nil
		},
	})
}

func (a *app) describeHub(at string, s *api.Status, now time.Time) {
	fmt.Fprintf(a.out, "hub %s\n", at)
	show := func(name, format string, args ...any) {
		fmt.Fprintf(a.out, "  %-12s %s\n", name, line(fmt.Sprintf(format, args...)))
	}
	show("version", "%s, up %s", s.Version, span(now.Sub(s.StartedAt)))
	show("cluster", "%s, epoch %d", s.Cluster, s.Epoch)
	show("node", "%s, leader %s, term %d, index %d", s.Node, first(s.Leader, "none"), s.Term, s.Index)
	held := ""
	if s.Held > 0 {
		held = fmt.Sprintf(", %d held", s.Held)
	}
	show("runners", "%d connected of %d%s", s.Online, s.Runners, held)
	if s.Circuits > 0 {
		show("circuits", "%d open; `tugline circuit list` shows them", s.Circuits)
	}
	jobs := ""
	for _, st := range fleet.States {
		if n := s.Jobs[string(st)]; n > 0 {
			jobs += fmt.Sprintf(", %d %s", n, words(st))
		}
	}
	show("jobs", "%s", first(cutFirst(jobs), "none"))
	show("disk", "log %s, output %s, files %s; %s free", size(s.Disk.LogBytes), size(s.Disk.SpoolBytes), size(s.Disk.BlobBytes), size(s.Disk.FreeBytes))
	show("kept", "jobs %s, at most %s; output %s, at most %s; audit %s", days(s.Retention.Jobs), count(int64(s.Retention.MaxJobs)), days(s.Retention.Output), size(s.Retention.OutputBytes), days(s.Retention.Audit))
	for _, k := range slices.Sorted(maps.Keys(s.Settings)) {
		show("setting", "%s = %s", k, s.Settings[k])
	}
	for _, w := range s.Warnings {
		show("warning", "%s", w)
	}
}

// days tells a keep time, which the hub writes as a duration.
func days(s string) string {
	d, err := time.ParseDuration(s)
	if err != nil || d < 48*time.Hour {
		return s
	}
	return plural(int(d/(24*time.Hour)), "day", "days")
}

// cutFirst takes the comma off the head of a list.
func cutFirst(s string) string {
	if len(s) < 2 {
		return ""
	}
	return s[2:]
}

func (a *app) hubSetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "set NAME VALUE", Short: "Change a setting of the hub", Args: exactly("NAME", "VALUE"),
		Long: `Change a setting of the hub; an empty value removes it.

  default_harness   the agent that a run without --harness gets
  model_priority    choices of harness and model, with commas between, along which jobs fall forward
                    where a provider refuses; a job goes on from its own place
  retry_pause       before the first automatic retry, from 1s to 1h (default 1m); the next ones double it
  floor_select      what must be free on a runner's disk for automation to be placed there (10GiB)
  floor_start       the same at the checkout and when the harness starts (20GiB)
  alert_webhook     the URL that alerts are posted to
  release_key       the minisign public key of releases; the first release sets it
  auto_provision    what a new runner is given once, such as codex,claude
  provisioning      off stops that anything is installed on runners`,
		Example:           "  tugline hub set default_harness codex\n  tugline hub set model_priority codex:gpt-5.2,claude:opus,opencode",
		ValidArgsFunction: cobra.FixedCompletions([]cobra.Completion{"default_harness", "model_priority", "retry_pause", "floor_select", "floor_start", "alert_webhook", "release_key", "auto_provision", "provisioning"}, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			body := struct {
				Value string `json:"value"`
			}{args[1]}
			if _, _, err := c.call(cmd.Context(), request{method: http.MethodPut, path: "/v1/settings/" + url.PathEscape(args[0]), body: body, patience: actPatience}); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s is now %s\n", args[0], first(args[1], "not set"))
			return nil
		},
	}
}

func (a *app) hubAuditCommand() *cobra.Command {
	var limit int
	var before uint64
	var since time.Duration
	filters := map[string]*string{"actor": new(string), "command": new(string), "subject": new(string)}
	c := &cobra.Command{
		Use: "audit", Short: "Who did what, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 500 {
				return usage("--limit %d is not from 1 to 500; --before shows further pages", limit)
			}
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			if before > 0 {
				q.Set("before", strconv.FormatUint(before, 10))
			}
			for name, value := range filters {
				if *value != "" {
					q.Set(name, *value)
				}
			}
			if since > 0 {
				q.Set("since", time.Now().Add(-since).UTC().Format(time.RFC3339))
			}
			var rs api.AuditRecords
			if done, err := a.answer(cmd.Context(), reading("/v1/audit", q), &rs); done {
				return err
			}
			t := table{head: []string{"INDEX", "TIME", "ACTOR", "FROM", "COMMAND", "SUBJECT", "DETAIL"}}
			for _, r := range rs.Records {
				if strings.HasPrefix(r.Command, "circuit.") {
					r.Subject = fleet.CircuitKey(r.Subject)
				}
				t.add(strconv.FormatUint(r.Index, 10), r.At.Local().Format("2006-01-02 15:04:05"), first(r.ActorName, r.Actor), first(r.Address, "-"), r.Command, r.Subject, r.Detail)
			}
			return t.print(a.out)
		},
	}
	c.Flags().IntVar(&limit, "limit", 100, "at most `N`, up to 500")
	c.Flags().Uint64Var(&before, "before", 0, "only records before this `INDEX`")
	c.Flags().StringVar(filters["actor"], "actor", "", "only what this `ACTOR` did: a token's id or name, or hub")
	c.Flags().StringVar(filters["command"], "command", "", "only this `COMMAND`, such as job.cancel, or all that begin with it, such as job.")
	c.Flags().StringVar(filters["subject"], "subject", "", "only what was done to this `ID`")
	c.Flags().DurationVar(&since, "since", 0, "only the last `TIME`, such as 24h")
	return a.jsonFlag(c)
}
