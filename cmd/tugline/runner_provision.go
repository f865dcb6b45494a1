package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const provisionLook = time.Second // between looks of --wait

func (a *app) runnerProvisionCommand() *cobra.Command {
	var version, credentials, cancel string
	var preserve, wait, list bool
	c := &cobra.Command{
		Use: "provision RUNNER [WHAT]", Short: "Have an agent or a browser installed on a runner", ValidArgsFunction: a.completeRunners,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return usage("give a RUNNER and WHAT it is to be given; see `%s --help`", cmd.CommandPath())
			}
			return nil
		},
		Long: `Have codex, claude, opencode or a browser installed on a RUNNER, by npm and into a directory of the
runner's own. The runner does it when it hears of it, no job of that agent is there, and its owner's rules
allow it (provision in runner.yaml). A failure is not tried again by itself.

With --credentials, a file of lines NAME=value or - for standard input, the agent is started with
these from then on, if the owner lets a hub give credentials. They are sealed to the runner at once
and are in no record. With --preserve-auth nothing of the login is touched.`,
		Example: "  tugline runner provision studio codex\n  tugline runner provision studio claude --version 2.1.197 --wait\n  tugline runner provision studio codex --credentials - <keys\n  tugline runner provision studio --list",
		RunE: func(cmd *cobra.Command, args []string) error {
			path := runnerPath(args[0], "/provisioning")
			switch {
			case list && cancel != "" || (list || cancel != "") && (len(args) == 2 || version != "" || credentials != "" || preserve || wait):
				return usage("--list and --cancel go with a RUNNER alone")
			case list:
				return a.listProvisions(cmd.Context(), path)
			case cancel != "":
				return a.cancelProvision(cmd.Context(), path, cancel)
			case len(args) == 1:
				return usage("say WHAT: %s; or --list, or --cancel ID", strings.Join(fleet.Provisionable(), ", "))
			case preserve && credentials != "":
				return usage("--preserve-auth touches nothing of the login, and --credentials replaces it; give one of them")
			}
			ask := api.AskProvision{What: args[1], Version: version, PreserveAuth: preserve}
			if credentials != "" {
				var err error
				if ask.Credentials, err = a.readCredentials(credentials); err != nil {
					return err
				}
			}
			return a.provision(cmd.Context(), path, ask, wait)
		},
	}
	c.Flags().StringVar(&version, "version", "", "`VERSION` or tag (default the newest)")
	c.Flags().StringVar(&credentials, "credentials", "", "`FILE` of lines NAME=value to start the agent with; - is standard input")
	c.Flags().BoolVar(&preserve, "preserve-auth", false, "touch nothing of the login")
	c.Flags().BoolVar(&wait, "wait", false, "wait for the outcome; exit code 1 where it failed")
	c.Flags().BoolVar(&list, "list", false, "list what was asked for")
	c.Flags().StringVar(&cancel, "cancel", "", "take the asking `ID` back that no runner has taken on")
	return a.jsonFlag(c)
}

func (a *app) cancelProvision(ctx context.Context, path, id string) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.close()
	if _, _, err := c.call(ctx, request{method: http.MethodDelete, path: path + "/" + url.PathEscape(id), patience: actPatience}); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "installation %s is cancelled\n", line(id))
	return nil
}

// readCredentials reads lines NAME=value. No message has a value.
func (a *app) readCredentials(file string) (map[string]string, error) {
	r := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fail(exitFailed, "the credentials can't be read: %v", err)
		}
		defer f.Close()
		r = f
	}
	return parseCredentials(r)
}

func parseCredentials(r io.Reader) (map[string]string, error) {
	out := map[string]string{}
	lines := bufio.NewScanner(io.LimitReader(r, 2*fleet.MaxCredential))
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" || value == "" {
			return nil, usage("line %d of the credentials is not NAME=value", n)
		}
		out[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	if lines.Err() != nil {
		return nil, fail(exitFailed, "the credentials can't be read: a line is too long, or the input ended badly")
	}
	if len(out) == 0 {
		return nil, usage("there are no credentials; give lines NAME=value")
	}
	return out, nil
}

// provision asks for an installation and, with wait, follows it to its end.
func (a *app) provision(ctx context.Context, path string, ask api.AskProvision, wait bool) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.close()
	var p api.Provision
	if _, err := c.act(ctx, path, ask, &p); err != nil {
		return err
	}
	told := ""
	for wait && (p.State == fleet.ProvisionQueued || p.State == fleet.ProvisionDelivered) && !p.CredentialsGone {
		if now := provisionText(&p); now != told && !a.json {
			fmt.Fprintln(a.err, now)
			told = now
		}
		select {
		case <-time.After(provisionLook):
		case <-ctx.Done():
			return ctx.Err()
		}
		var all api.Provisions
		if _, err := c.read(ctx, path, nil, &all); err != nil {
			return err
		}
		for _, o := range all.Provisioning {
			if o.ID == p.ID {
				p = o
			}
		}
	}
	if a.json {
		err = a.printJSON(p)
	} else {
		_, err = fmt.Fprintln(a.out, provisionText(&p))
	}
	if err == nil && wait && p.State != fleet.ProvisionSucceeded {
		return fail(exitFailed, "%s is not installed", p.What)
	}
	return err
}

func (a *app) listProvisions(ctx context.Context, path string) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.close()
	var all api.Provisions
	if _, err := c.read(ctx, path, nil, &all); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(all)
	}
	if all.Off {
		fmt.Fprintln(a.out, "provisioning is switched off in this cluster")
	}
	if len(all.Provisioning) == 0 {
		fmt.Fprintf(a.out, "nothing was asked to be installed on %s\n", line(all.Name))
	}
	for i := range all.Provisioning {
		fmt.Fprintln(a.out, provisionText(&all.Provisioning[i]))
	}
	return nil
}

// provisionText is one installation for people.
func provisionText(p *api.Provision) string {
	text := fmt.Sprintf("%s  %s", p.ID, p.What)
	if v := first(p.Installed, p.Version); v != "" {
		text += " " + v
	}
	text += ": " + string(p.State)
	if p.Class != "" {
		text += " (" + p.Class + ")"
	}
	for _, s := range []string{p.Detail, p.Waits} {
		if s != "" {
			text += "; " + s
		}
	}
	if p.CredentialsGone {
		text += "; its credentials are gone with the hub node that held them: ask for the same again, with --credentials"
	}
	if len(p.Credentials) > 0 {
		text += "; with " + strings.Join(p.Credentials, ", ")
	}
	return line(text)
}
