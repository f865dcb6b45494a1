package main

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) tokenCommand() *cobra.Command {
	var role, name string
	var ttl time.Duration
	create := &cobra.Command{
		Use: "create --role ROLE", Short: "Make an operator token, shown once", Args: cobra.NoArgs,
		Long: `Make a token with which people and scripts use the hub. Its secret goes to standard output
and is shown only now.

  viewer     sees everything but credentials
  operator   also gives, cancels and settles jobs, holds runners, resets circuits
  admin      also makes tokens and tickets, removes runners, sets slots, budgets and settings`,
		Example: "  tugline token create --role operator --ttl 720h --name ci > ci.token",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := api.TokenRequest{Name: name, Role: fleet.Role(role)}
			if role == "" {
				return usage("--role is missing; give viewer, operator or admin")
			}
			if err := oneOf("role", role, "viewer", "operator", "admin"); err != nil {
				return err
			}
			if cmd.Flags().Changed("ttl") {
				if ttl < time.Minute {
					return usage("--ttl %s is too short; give at least 1m, or leave it out for a token without end", ttl)
				}
				b.TTL = ttl.String()
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			raw, _, err := c.call(cmd.Context(), request{method: http.MethodPost, path: "/v1/tokens", body: b, once: true, patience: actPatience})
			if err != nil {
				return err
			}
			if a.json {
				return a.printRaw(raw)
			}
			var t api.Token
			if err := decode(raw, &t); err != nil {
				return err
			}
			fmt.Fprintln(a.out, t.Secret)
			a.say("token %s, role %s, %s; `tugline token revoke %s` ends it", t.ID, t.Role, until(t.ExpiresAt), t.ID)
			return nil
		},
	}
	create.Flags().StringVar(&role, "role", "", "`ROLE`: viewer, operator or admin (required)")
	create.Flags().DurationVar(&ttl, "ttl", 0, "how long it holds, a `DURATION` (default without end)")
	create.Flags().StringVar(&name, "name", "", "`NAME` that says what it is for")
	create.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]cobra.Completion{"viewer", "operator", "admin"}, cobra.ShellCompDirectiveNoFileComp))
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "Tokens, without their secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var ts api.Tokens
			if done, err := a.answer(cmd.Context(), reading("/v1/tokens", nil), &ts); done {
				return err
			}
			now := time.Now()
			t := table{head: []string{"ID", "ROLE", "STATE", "CREATED", "BY", "NAME"}}
			names := map[string]string{}
			for _, k := range ts.Tokens {
				names[string(k.ID)] = k.Name
			}
			for _, k := range ts.Tokens {
				t.add(string(k.ID), string(k.Role), tokenState(&k, now), ago(now, &k.CreatedAt), first(names[k.CreatedBy], k.CreatedBy, "-"), k.Name)
			}
			return t.print(a.out)
		},
	}
	revoke := &cobra.Command{
		Use: "revoke ID", Short: "End a token at once", Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			if _, _, err := c.call(cmd.Context(), request{method: http.MethodDelete, path: "/v1/tokens/" + url.PathEscape(args[0]), patience: actPatience}); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "token %s is revoked\n", args[0])
			return nil
		},
	}
	return group("token", "Operator tokens: make, list, revoke", groupMesh, a.jsonFlag(create), a.jsonFlag(list), revoke)
}

func until(t *time.Time) string {
	if t == nil {
		return "without end"
	}
	return "until " + t.Local().Format("2006-01-02 15:04")
}

func tokenState(k *api.Token, now time.Time) string {
	switch {
	case k.Revoked:
		return "revoked"
	case k.ExpiresAt == nil:
		return "holds"
	case now.After(*k.ExpiresAt):
		return "expired"
	}
	return until(k.ExpiresAt)
}

// readSecret reads one line of standard input, without echo on a terminal.
func (a *app) readSecret(what string) (string, error) {
	if f, ok := a.in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(a.err, what+": ")
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.err)
		if err != nil {
			return "", fail(exitUsage, "cannot read the %s: %v", what, err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	l, err := bufio.NewReader(a.in).ReadString('\n')
	if l = strings.TrimSpace(l); l == "" {
		return "", usage("no %s came on standard input (%v)", what, err)
	}
	return l, nil
}
