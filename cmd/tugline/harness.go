package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/runner/harness"
)

func (a *app) harnessCommand() *cobra.Command {
	list := local(a.jsonFlag(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "Agents found on this machine, and whether they are signed in", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := harness.Detect(cmd.Context(), harness.DetectRequest{Env: a.environ, All: true})
			if a.json {
				return a.printJSON(map[string]any{"harnesses": found})
			}
			t := table{head: []string{"NAME", "VERSION", "SIGNED IN", "CAN", "PATH"}}
			for _, h := range found {
				signed, path := h.SignedIn, h.Path
				if path == "" {
					path = "-"
				}
				if h.Path == "" && h.Name != "exec" {
					signed = "-"
				}
				t.add(h.Name, first(h.Version, "-"), first(signed, "-"), first(strings.Join(h.Capabilities, ","), "-"), path)
			}
			if err := t.print(a.out); err != nil {
				return err
			}
			for _, h := range found { // whole, for it says what to do
				if h.Detail != "" {
					fmt.Fprintf(a.out, "%s: %s\n", h.Name, strings.TrimPrefix(line(h.Detail), h.Name+": "))
				}
			}
			return nil
		},
	}))
	var exit int
	var stderr string
	parse := &cobra.Command{
		Use: "parse NAME < STREAM", Short: "Tell what a recorded stream of an agent means, as JSON lines", Args: exactly("NAME"),
		Long: `Read what an agent's program wrote, from standard input, and print the events that Tugline
makes of it as JSON lines; the last line is the outcome. For reports of mistakes and tests.`,
		Example:           "  tugline job logs ID --raw | tugline harness parse codex\n  tugline harness parse claude --exit 1 --stderr err.txt < out.jsonl",
		ValidArgsFunction: cobra.FixedCompletions(harness.Names(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, ok := harness.Lookup(args[0]); !ok {
				return usage("there is no harness %q; there are %s", args[0], strings.Join(harness.Names(), ", "))
			}
			if stderr == "" {
				return harness.Parse(args[0], a.in, a.out, exit, nil)
			}
			f, err := os.Open(stderr)
			if err != nil {
				return usage("cannot read --stderr: %v", err)
			}
			defer f.Close()
			if err := harness.Parse(args[0], a.in, a.out, exit, f); err != nil {
				return fmt.Errorf("parse: %w", err)
			}
			return nil
		},
	}
	parse.Flags().IntVar(&exit, "exit", 0, "how it ended: its exit code `N`, or -N for signal N")
	parse.Flags().StringVar(&stderr, "stderr", "", "`FILE` with what it wrote to standard error")
	return group("harness", "Agents: what is installed here, and what their streams mean", groupLook, list, local(parse))
}
