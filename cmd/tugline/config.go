package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"tugline.dev/tugline/runner/durable"
)

// contexts is the user's config.yaml: the hubs they work with.
type contexts struct {
	Current  string             `yaml:"current"`
	Contexts map[string]hubSpot `yaml:"contexts"`
}

// hubSpot is a hub and how to speak to it.
type hubSpot struct {
	Hub    string   `yaml:"hub"`
	Others []string `yaml:"others,omitempty"` // further nodes of its cluster, asked when it fails
	Token  string   `yaml:"token,omitempty"`
	CAFile string   `yaml:"ca_file,omitempty"`
}

func (s hubSpot) all() []string { return append([]string{s.Hub}, s.Others...) }

// serves says whether each of some hubs is of this cluster.
func (s hubSpot) serves(hubs []string) bool {
	for _, h := range hubs {
		if !slices.ContainsFunc(s.all(), func(own string) bool { return sameHub(own, h) }) {
			return false
		}
	}
	return true
}

func (a *app) configFile() string {
	return filepath.Join(a.home("XDG_CONFIG_HOME", ".config"), "config.yaml")
}

// devDir is where `tugline dev` keeps its data unless told otherwise.
func (a *app) devDir() string { return filepath.Join(a.home("XDG_DATA_HOME", ".local/share"), "dev") }

func (a *app) loadContexts() (contexts, error) {
	c := contexts{Contexts: map[string]hubSpot{}}
	file := a.configFile()
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fail(exitUsage, "cannot read %s: %v", file, err)
	}
	if st, err := os.Stat(file); err == nil && st.Mode().Perm()&0o077 != 0 {
		return c, usage("%s holds tokens and others may read it (mode %04o); run: chmod 600 %s", file, st.Mode().Perm(), file)
	}
	d := yaml.NewDecoder(strings.NewReader(string(b)))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && len(strings.TrimSpace(string(b))) > 0 {
		return c, usage("%s cannot be read: %s; mend it, or make it anew with `tugline context add`", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if c.Contexts == nil {
		c.Contexts = map[string]hubSpot{}
	}
	return c, nil
}

func (a *app) saveContexts(c contexts) error {
	b, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	file := a.configFile()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fail(exitFailed, "cannot write %s: %v", file, err)
	}
	if err := durable.Replace(file, b, 0o600); err != nil {
		return fail(exitFailed, "cannot write %s: %v", file, err)
	}
	return nil
}

// spot says which hub is meant: flags, then the environment, then the current
// context, then the hub that this user runs on this machine. A token is never sent
// to another hub than the one it was kept for.
func (a *app) spot() (hubSpot, error) {
	var hubs []string
	if text := first(a.hub, a.env("TUGLINE_HUB")); text != "" {
		var err error
		if hubs, err = hubList(text); err != nil {
			return hubSpot{}, err
		}
	}
	s, err := a.keptSpot(hubs)
	if err != nil && hubs == nil {
		return hubSpot{}, err
	}
	if hubs == nil && s.Hub != "" { // kept in a file that people may edit
		if hubs, err = hubList(strings.Join(s.all(), ",")); err != nil {
			return hubSpot{}, err
		}
	}
	if hubs == nil {
		return s, usage("no hub is known; start one here with `tugline dev`, or give --hub and --token, or keep one with `tugline context add`")
	}
	s.Hub, s.Others = hubs[0], append([]string(nil), hubs[1:]...)
	s.Token, s.CAFile = first(a.token, a.env("TUGLINE_TOKEN"), s.Token), first(a.caFile, a.env("TUGLINE_CA_FILE"), s.CAFile)
	if strings.ContainsFunc(s.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return s, usage("the token for the hub %s has a blank, a line break or another character that no token has; give it as `tugline token create` printed it", s.Hub)
	}
	if s.Token == "" {
		return s, fail(exitUnauthorised, "no token for the hub %s; set TUGLINE_TOKEN, give --token, or keep it with `tugline context add`", s.Hub)
	}
	return s, nil
}

// keptSpot finds a hub that is kept on this machine; with URLs, only one that has all
// of them.
func (a *app) keptSpot(hubs []string) (hubSpot, error) {
	c, err := a.loadContexts()
	if err != nil {
		return hubSpot{}, err
	}
	if len(hubs) > 0 {
		for _, name := range append([]string{c.Current}, slices.Sorted(maps.Keys(c.Contexts))...) {
			if s, ok := c.Contexts[name]; ok && s.serves(hubs) {
				return s, nil
			}
		}
		if s, ok := a.devSpot(); ok && s.serves(hubs) {
			return s, nil
		}
		for _, l := range a.localHubs() {
			if (hubSpot{Hub: l.Hub}).serves(hubs) {
				s, _ := l.spot() // without its token one has to be given
				return s, nil
			}
		}
		return hubSpot{}, nil
	}
	if c.Current != "" {
		s, ok := c.Contexts[c.Current]
		if !ok {
			return s, usage("the current context %q is not in %s; choose one with `tugline context use`", c.Current, a.configFile())
		}
		return s, nil
	}
	return a.hubHere()
}

// devSpot finds a `tugline dev` that runs now.
func (a *app) devSpot() (hubSpot, bool) {
	s, err := readSpot(a.devDir())
	if err != nil {
		return s, false
	}
	return s, answers(s.Hub)
}

// readSpot reads what a hub wrote into its data directory for the people beside it.
func readSpot(dir string) (hubSpot, error) {
	u, err := os.ReadFile(filepath.Join(dir, "hub.url"))
	if err != nil {
		return hubSpot{}, err
	}
	t, err := os.ReadFile(filepath.Join(dir, "operator.token"))
	if err != nil {
		return hubSpot{}, err
	}
	s := hubSpot{Hub: strings.TrimSpace(string(u)), Token: strings.TrimSpace(string(t))}
	if ca := filepath.Join(dir, caName); strings.HasPrefix(s.Hub, "https:") {
		if _, err := os.Stat(ca); err == nil {
			s.CAFile = ca
		}
	}
	return s, nil
}

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// hubURL checks a hub's URL and gives it without a slash at its end.
func hubURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", usage("the hub %q is not a URL such as http://127.0.0.1:7440 or https://hub.example.com", s)
	}
	if u.User != nil {
		return "", usage("the hub's URL carries credentials; leave them out and give --token or TUGLINE_TOKEN")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func sameHub(a, b string) bool {
	x, err1 := hubURL(a)
	y, err2 := hubURL(b)
	return err1 == nil && err2 == nil && strings.EqualFold(x, y)
}

// roots reads a CA file; nil stands for the machine's own.
func roots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, usage("cannot read the CA file: %v", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, usage("the CA file %s holds no certificate in PEM form", file)
	}
	return pool, nil
}

// otherNodes asks a hub for the other nodes of its cluster, for a moment.
func (a *app) otherNodes(ctx context.Context, s hubSpot) []string {
	c, err := newClient(s, a.say)
	if err != nil {
		return nil
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, askOthers)
	defer cancel()
	if !slices.ContainsFunc(s.all(), answers) {
		return nil // it is kept all the same
	}
	others, err := c.others(ctx)
	if err != nil {
		a.say("the other nodes of the cluster are not known: %s", sentence(err))
	}
	return others
}

// askOthers bounds the wait for a hub to name the others.
const askOthers = 5 * time.Second

func (a *app) contextCommand() *cobra.Command {
	list := a.jsonFlag(&cobra.Command{
		Use: "list", Short: "Hubs kept on this machine", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.loadContexts()
			if err != nil {
				return err
			}
			type row struct {
				Name    string   `json:"name"`
				Hub     string   `json:"hub"`
				Others  []string `json:"others,omitempty"`
				CAFile  string   `json:"ca_file,omitempty"`
				Current bool     `json:"current"`
			}
			rows := []row{}
			for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
				s := c.Contexts[name]
				rows = append(rows, row{name, s.Hub, s.Others, s.CAFile, name == c.Current})
			}
			local := a.localHubs()
			for i := range local {
				local[i].Runs = answers(local[i].Hub)
			}
			if a.json {
				return a.printJSON(map[string]any{"contexts": rows, "local": append([]localHub{}, local...)})
			}
			for _, l := range local {
				how := "does not answer"
				if l.Runs {
					how = "runs"
				}
				a.say("%s, started here with its data in %s, %s", l.Hub, l.Dir, how)
			}
			if len(rows) == 0 {
				fmt.Fprintln(a.out, "No hub is kept yet; add one with `tugline context add NAME --hub URL`.")
				return nil
			}
			t := table{head: []string{"", "NAME", "HUB", "CA FILE"}}
			for _, r := range rows {
				mark := ""
				if r.Current {
					mark = "*"
				}
				hub := r.Hub
				if n := len(r.Others); n > 0 {
					hub += fmt.Sprintf(" and %d more", n)
				}
				t.add(mark, r.Name, hub, r.CAFile)
			}
			return t.print(a.out)
		},
	})
	use := &cobra.Command{
		Use: "use NAME", Short: "Choose the hub that commands speak to", Args: exactly("NAME"),
		ValidArgsFunction: a.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := a.loadContexts()
			if err != nil {
				return err
			}
			if _, ok := c.Contexts[args[0]]; !ok {
				return usage("there is no context %q; `tugline context list` shows them", args[0])
			}
			c.Current = args[0]
			return a.saveContexts(c)
		},
	}
	add := &cobra.Command{
		Use: "add NAME --hub URL[,URL]", Short: "Keep a hub, with its token, and make it the current one", Args: exactly("NAME"),
		Long: `Keep a hub under a name in config.yaml (mode 0600), and make it the current one.
The token is taken from --token, from TUGLINE_TOKEN, or from a line on standard input. The other
nodes of the hub's cluster are asked for and kept too, so that commands go on when one fails;
where it can't be asked now, give them with commas between, or add the context again later.`,
		Example: `  tugline context add team --hub https://hub.example.com:7440 --ca-file hub-ca.pem < token`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s := hubSpot{Token: first(a.token, a.env("TUGLINE_TOKEN")), CAFile: first(a.caFile, a.env("TUGLINE_CA_FILE"))}
			hubs, err := hubList(first(a.hub, a.env("TUGLINE_HUB")))
			if err != nil {
				return err
			}
			s.Hub, s.Others = hubs[0], hubs[1:]
			if s.CAFile != "" {
				if s.CAFile, err = filepath.Abs(s.CAFile); err != nil {
					return err
				}
				if _, err := roots(s.CAFile); err != nil {
					return err
				}
			}
			if s.Token == "" {
				if s.Token, err = a.readSecret("operator token"); err != nil {
					return err
				}
			}
			s.Others = append(s.Others, a.otherNodes(cmd.Context(), s)...)
			c, err := a.loadContexts()
			if err != nil {
				return err
			}
			c.Contexts[args[0]], c.Current = s, args[0]
			if err := a.saveContexts(c); err != nil {
				return err
			}
			a.say("%s is now the hub of this machine's commands, kept in %s", s.Hub, a.configFile())
			return nil
		},
	}
	return group("context", "Keep hubs and choose between them", groupElse, local(list), local(use), add)
}
