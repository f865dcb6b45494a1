package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
)

func (a *app) hubTimeCommand() *cobra.Command {
	accept := a.jsonFlag(&cobra.Command{
		Use: "accept", Short: "Say that the hub's clock is right", Args: cobra.NoArgs,
		Long: `Say that the clock of the hub's machine is right although the hub does not believe it.
Look at the clock first: what is due by it expires, and that can't be taken back. The
hub records nothing until its clock is set right or accepted.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var t api.Clock
			if done, err := a.answer(cmd.Context(), request{method: http.MethodPost, path: "/v1/time/accept", patience: actPatience}, &t); done {
				return err
			}
			const form = "2006-01-02 15:04:05 MST"
			if !t.Accepted {
				fmt.Fprintf(a.out, "The hub believes its clock, which says %s; there was nothing to accept.\n", t.Clock.Local().Format(form))
				return nil
			}
			fmt.Fprintf(a.out, "The hub goes by its clock, which says %s; its log ended at %s.\n", t.Clock.Local().Format(form), t.StateTime.Local().Format(form))
			return nil
		},
	})
	return group("time", "The hub's clock", "", accept)
}
