package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
)

func (a *app) hubDoctorCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "doctor", Short: "See what the hub lacks, and how to mend it", Args: cobra.NoArgs,
		Long: `Look at the hub that your commands use: whether each of its URLs is reached and takes writes, the
clocks, its disk, its nodes, settings that cannot be read, and which platforms it has the program
for, which runners install. Each line is ok, warn or fail. It exits with 1 where one failed.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			return a.told(lookAtHub(cmd, c))
		},
	})
}

// hubPlatforms are those that runners are installed on.
var hubPlatforms = []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64"}

func lookAtHub(cmd *cobra.Command, c *client) *findings {
	var f findings
	ctx := cmd.Context()
	get := func(method, url string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, method, url, nil)
		if err != nil {
			return nil, err
		}
		res, err := c.http.Do(req)
		if err == nil {
			res.Body.Close()
		}
		return res, err
	}
	reached := ""
	for _, base := range c.spot.all() {
		sent := time.Now()
		res, err := get(http.MethodGet, base+"/readyz")
		if err != nil {
			f.add("reach", levelFail, "see that the node runs, and that a firewall or proxy lets it through", "%s: %v", base, err)
			continue
		}
		if reached == "" {
			reached = base
			if at, err := http.ParseTime(res.Header.Get("Date")); err == nil {
				f.clock(sent.Sub(at.Add(500 * time.Millisecond)).Round(time.Second))
			}
		}
		if res.StatusCode != http.StatusOK {
			f.add("reach", levelFail, "tugline hub status, and logs/hub.log in its data directory", "%s takes no writes (%s)", base, res.Status)
			continue
		}
		f.add("reach", levelOK, "", "%s takes writes", base)
	}
	if reached == "" {
		return &f
	}
	var s api.Status
	if _, err := c.read(ctx, "/v1/status", nil, &s); err != nil {
		f.add("status", levelFail, "tugline context, or a token of tugline token create", "%v", err)
		return &f
	}
	f.add("status", levelOK, "", "version %s, %s online of %d", s.Version, plural(s.Online, "runner", "runners"), s.Runners)
	for _, w := range s.Warnings {
		f.add("settings", levelWarn, "tugline hub set", "%s", w)
	}
	var m api.Members
	if _, err := c.read(ctx, "/v1/members", nil, &m); err != nil {
		f.add("nodes", levelWarn, "tugline hub members", "%v", err)
	}
	for _, n := range m.Members {
		switch {
		case n.Role == "removed":
		case n.Health != "ok":
			f.add("node", levelWarn, "tugline hub members", "%s: %s %s", n.ID, n.Health, n.Detail)
		default:
			f.add("node", levelOK, "", "%s: %s, version %s, %s free on its disk", n.ID, n.Role, n.Version, size(n.DiskFree))
		}
	}
	for _, w := range m.Warnings {
		f.add("nodes", levelWarn, "tugline hub members", "%s", w)
	}
	var missing, unsigned []string
	there := func(path string) bool {
		res, err := get(http.MethodHead, reached+"/v1/binaries/"+path)
		return err == nil && res.StatusCode == http.StatusOK
	}
	for _, p := range hubPlatforms {
		switch {
		case !there(p):
			missing = append(missing, p)
		case !there(p + ".minisig"):
			unsigned = append(unsigned, p)
		}
	}
	if len(missing) > 0 {
		f.add("programs", levelWarn, "tugline hub run --programs DIR, with tugline-OS-ARCH of the same build in it", "no program for %s: no runner can be installed there by the pasted line", strings.Join(missing, ", "))
	} else {
		f.add("programs", levelOK, "", "for %s", strings.Join(hubPlatforms, ", "))
	}
	if len(unsigned) > 0 {
		f.add("signatures", levelWarn, "tugline hub release add DIR with the hub's own version, or PROGRAM.minisig beside each program", "none of the program for %s: the pasted line goes by the SHA-256 in the ticket only", strings.Join(unsigned, ", "))
	}
	return &f
}
