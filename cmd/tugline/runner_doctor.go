package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/runner/probe"
	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/runner/service"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) runnerDoctorCommand() *cobra.Command {
	var mode string
	c := a.jsonFlag(&cobra.Command{
		Use: "doctor", Short: "See what a runner here lacks, and how to mend it", Args: cobra.NoArgs,
		Long: `Look at everything that a runner on this machine needs, in the environment that its service has:
the hub by name, connection and WebSocket, with and without the proxy variables, the clock, agents
and whether they are signed in, git, disk, Docker, permissions, and what stops it while nobody is
there. Each line is ok, warn or fail, and says how to mend it. It exits with 1 where one failed.

A daemon is looked at as its own user: sudo -u tugline-runner tugline runner doctor --mode daemon`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.serviceLayout(mode)
			if err != nil {
				return err
			}
			who, err := user.Current()
			if err != nil {
				return fail(exitFailed, "cannot tell who runs it: %v", err)
			}
			d := &runnerDoctor{data: l.Data, mode: l.Mode, env: a.environ, who: who.Username, uid: os.Getuid(), control: service.Tools{UID: os.Getuid()}}
			return a.told(d.look(cmd.Context()))
		},
	})
	c.Flags().StringVar(&mode, "mode", "", "`MODE` in which it is installed, agent or daemon (default agent, for root daemon)")
	return local(c)
}

// runnerDoctor looks at one data directory.
type runnerDoctor struct {
	findings
	data    string
	mode    service.Mode
	env     []string // of the service, once that is known
	who     string
	uid     int
	control service.Control
}

func (d *runnerDoctor) look(ctx context.Context) *findings {
	rec, err := service.Installed(d.data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.add("service", levelWarn, "tugline runner install", "no service is installed here as %s; what follows is by your own environment", d.mode)
	case err != nil:
		d.add("service", levelFail, "run this as the runner's own user, or install it again", "%v", err)
	default:
		d.ofService(ctx, rec)
	}
	d.updates()
	d.permissions()
	owner := d.rules()
	d.hubs(ctx)
	d.harnesses(ctx, owner)
	d.git(ctx)
	d.machine(ctx, owner)
	d.browser()
	d.sleep(ctx)
	return &d.findings
}

// ofService looks at the service itself, and takes its environment over.
func (d *runnerDoctor) ofService(ctx context.Context, rec service.Record) {
	env := []string{"PATH=" + rec.Path, "USER=" + d.who, "LOGNAME=" + d.who}
	for _, name := range []string{"HOME", "LANG", "XDG_RUNTIME_DIR"} {
		if v := environment(d.env, name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	d.env = append(env, rec.Environment...)
	state, active := service.State(ctx, rec, d.control, d.uid)
	switch away := strings.TrimSpace(service.Away(d.data)); {
	case away != "":
		d.add("service", levelFail, "enrol it again: tugline hub ticket --for RUNNER at the hub, and TUGLINE_TICKET=… tugline runner run here", "the hub sent it away: %s", away)
	case !active:
		d.add("service", levelFail, "tugline runner install", "%s, %s", rec.Mode, state)
	default:
		d.add("service", levelOK, "", "%s, %s, %s", rec.Mode, state, rec.Installed)
	}
	if rec.Mode == service.Agent && rec.Init == service.Systemd {
		switch service.Lingers(ctx, d.control, d.who) {
		case "yes":
			d.add("linger", levelOK, "", "the services of %s run without a login", d.who)
		case "no":
			d.add("linger", levelFail, "sudo loginctl enable-linger "+d.who, "the runner ends when %s logs out, and does not start with the machine", d.who)
		default:
			d.add("linger", levelWarn, "loginctl show-user "+d.who, "it cannot be told whether the services of %s run without a login", d.who)
		}
	}
	if rec.Mode == service.Agent {
		d.add("memory", levelOK, "", "where memory is short, jobs are ended first, by 100 points; a daemon would be spared by 500 more")
	}
}

// updates says who replaces the program.
func (d *runnerDoctor) updates() {
	p, err := packaged()
	switch {
	case err != nil:
		d.add("updates", levelFail, "install the package again", "%v", err)
	case p.Manager != "":
		d.add("updates", levelOK, "", "managed by %s: `%s` updates it", p.Manager, p.UpdatedBy())
	default:
		d.add("updates", levelOK, "", "by the hub's releases, as runner.yaml allows")
	}
}

// permissions sees that nobody else reads the runner's keys.
func (d *runnerDoctor) permissions() {
	if _, err := os.Stat(d.data); errors.Is(err, fs.ErrNotExist) {
		d.add("permissions", levelOK, "", "%s is not there yet", d.data)
		return
	}
	bad, mend := "", "chmod -R go-rwx "+quoted(d.data)+", as its own user"
	for name, most := range map[string]fs.FileMode{".": 0o700, "identity.json": 0o600, "git-credentials.yaml": 0o600, "secrets.yaml": 0o600, "runner.yaml": 0o600} {
		st, err := os.Stat(filepath.Join(d.data, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			bad, mend = err.Error(), "run this as the runner's own user"
		case st.Mode().Perm()&^most != 0:
			bad = fmt.Sprintf("%s is %04o, at most %04o", filepath.Join(d.data, name), st.Mode().Perm(), most)
		}
	}
	if bad != "" {
		d.add("permissions", levelFail, mend, "%s", bad)
		return
	}
	d.add("permissions", levelOK, "", "%s is its owner's alone", d.data)
}

// proxyVariables say by which proxy hubs are reached, where by one.
var proxyVariables = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"}

// hubs tries the way to each hub, by the service's proxies where it has some, and without.
func (d *runnerDoctor) hubs(ctx context.Context) {
	name, enrolled, err := runner.Enrolled(d.data)
	if err != nil {
		d.add("enrolled", levelFail, "run this as the runner's own user; where it still can't be read, enrol it again", "%v", err)
		return
	}
	if !enrolled {
		d.add("enrolled", levelFail, "tugline hub ticket at the hub, then tugline runner install --ticket - here", "%s holds no runner that is enrolled", d.data)
		return
	}
	d.add("enrolled", levelOK, "", "as %s", name)
	for _, name := range append([]string{"NO_PROXY", "no_proxy"}, proxyVariables...) { // of this process, as the service has them
		os.Setenv(name, environment(d.env, name))
	}
	proxied := environment(d.env, proxyVariables...) != ""
	direct, err := runner.Reach(ctx, d.data, false)
	if err != nil {
		d.add("hub", levelFail, "enrol it again: tugline hub ticket --for RUNNER at the hub, and TUGLINE_TICKET=… tugline runner run here", "%v", err)
		return
	}
	d.ways("hub", direct, proxied)
	tried := direct
	if proxied {
		if tried, err = runner.Reach(ctx, d.data, true); err != nil {
			d.add("hub by proxy", levelFail, "see HTTPS_PROXY and NO_PROXY of the service", "%v", err)
			return
		}
		d.ways("hub by proxy", tried, false)
	}
	for _, r := range tried {
		if r.Told {
			d.clock(r.Ahead)
			return
		}
	}
	d.add("clock", levelWarn, "date, and timedatectl set-ntp true", "it cannot be held against the hub's, which was not reached; here it is %s", time.Now().UTC().Format(time.RFC3339))
}

// ways tells how each hub was reached. One is enough for a runner; spare says that there
// is another way.
func (d *runnerDoctor) ways(check string, all []runner.Reached, spare bool) {
	any := false
	for _, r := range all {
		any = any || r.Err == nil
	}
	for _, r := range all {
		level := levelFail
		if any || spare {
			level = levelWarn
		}
		if r.Err == nil {
			d.add(check, levelOK, "", "%s: name, connection and WebSocket", r.Hub)
			continue
		}
		mend := map[string]string{
			"name":       "see that this machine's DNS knows the name, or have the hub named otherwise (hub run --public-url)",
			"connection": "see that a firewall or proxy lets it through, and that the hub runs (tugline hub doctor there)",
			"WebSocket":  "a proxy between drops upgrades; runner run --transport http does without",
		}[r.Step]
		if r.Step == "WebSocket" {
			level = levelWarn // auto goes on by HTTP
		}
		d.add(check, level, mend, "%s: %s: %v", r.Hub, r.Step, r.Err)
	}
}

const doctorPatience = 15 * time.Second // for one tool

// says runs a tool in the service's environment.
func (d *runnerDoctor) says(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	res, err := process.Run(ctx, process.Cmd{Argv: argv, Env: d.env})
	return strings.TrimSpace(string(res.Stdout)), err
}

func (d *runnerDoctor) git(ctx context.Context) {
	version, err := d.says(ctx, "git", "version")
	if err != nil {
		d.add("git", levelFail, "install git, or tugline runner install again from a shell that finds it", "it does not run: %v", err)
		return
	}
	d.add("git", levelOK, "", "%s", version)
	helper, _ := d.says(ctx, "git", "config", "--get-all", "credential.helper")
	keys, _ := filepath.Glob(filepath.Join(environment(d.env, "HOME"), ".ssh", "id_*"))
	_, own := os.Stat(filepath.Join(d.data, "git-credentials.yaml"))
	switch {
	case own == nil:
		d.add("credentials", levelOK, "", "git-credentials.yaml in the data directory")
	case helper != "":
		d.add("credentials", levelOK, "", "git's credential.helper %s", helper)
	case len(keys) > 0:
		d.add("credentials", levelOK, "", "ssh keys in %s", filepath.Dir(keys[0]))
	default:
		d.add("credentials", levelWarn, "git-credentials.yaml in the data directory, an ssh key or a credential.helper of "+d.who, "none for git: only public repositories, and those sent along, can be fetched")
	}
}

// machine looks at disk, memory and Docker.
func (d *runnerDoctor) machine(ctx context.Context, owner runner.Owner) {
	at := d.data
	if _, err := os.Stat(at); err != nil {
		at = filepath.Dir(at)
	}
	s := probe.New(probe.Config{Workspace: at, Cache: at, Env: d.env})
	h := s.Sample(ctx)
	floors := fleet.FloorsOf(nil)
	switch v := h.Workspace; {
	case !v.Known:
		d.add("disk", levelWarn, "df "+quoted(at), "it cannot be told what is free: %s", v.Detail)
	case v.Free < int64(owner.MinFree):
		d.add("disk", levelFail, "free some: tugline runner disk says what takes it; or lower min_free_bytes in runner.yaml", "%s of %s are free; nothing new is taken below %s", size(v.Free), size(v.Total), size(int64(owner.MinFree)))
	case v.Free < floors.Select:
		d.add("disk", levelWarn, "free some, or lower the floor: tugline hub set floor_select SIZE", "%s of %s are free; automations are given work from %s on", size(v.Free), size(v.Total), size(floors.Select))
	default:
		d.add("disk", levelOK, "", "%s of %s are free", size(v.Free), size(v.Total))
	}
	switch k := h.Docker; {
	case k.State == fleet.DockerAbsent:
		d.add("docker", levelOK, "", "none; jobs that ask for it go elsewhere")
	case k.State != fleet.DockerReady:
		d.add("docker", levelWarn, "start it, and see that "+d.who+" may use it (docker version)", "%s: %s", k.State, k.Detail)
	case k.Compose == "":
		d.add("docker", levelWarn, "install the compose plugin", "%s, without Compose", k.Version)
	default:
		d.add("docker", levelOK, "", "%s, Compose %s", k.Version, k.Compose)
	}
}

// browsers are what jobs with a browser look for.
var browsers = []string{"google-chrome", "google-chrome-stable", "chromium", "chromium-browser", "chrome", "firefox"}

func (d *runnerDoctor) browser() {
	for _, dir := range filepath.SplitList(environment(d.env, "PATH")) {
		for _, name := range browsers {
			if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0 {
				d.add("browser", levelOK, "", "%s", filepath.Join(dir, name))
				return
			}
		}
	}
	for _, app := range []string{"/Applications/Google Chrome.app", "/Applications/Chromium.app", "/Applications/Firefox.app"} {
		if _, err := os.Stat(app); err == nil {
			d.add("browser", levelOK, "", "%s", app)
			return
		}
	}
	d.add("browser", levelOK, "", "none; jobs that drive one bring theirs")
}

// sleep says whether the machine goes to sleep over its jobs.
func (d *runnerDoctor) sleep(ctx context.Context) {
	if runtime.GOOS == "darwin" {
		out, code, err := d.control.Run(ctx, "pmset", "-g")
		switch {
		case err != nil || code != 0:
			d.add("sleep", levelWarn, "pmset -g", "it cannot be told whether the machine goes to sleep")
		case sleepsOnMac(out):
			d.add("sleep", levelWarn, "sudo pmset -c sleep 0", "the machine goes to sleep, and its jobs with it")
		default:
			d.add("sleep", levelOK, "", "the machine stays awake")
		}
		return
	}
	if out, _, err := d.control.Run(ctx, "systemctl", "is-enabled", "sleep.target"); err == nil && strings.TrimSpace(out) == "masked" {
		d.add("sleep", levelOK, "", "sleep is masked")
		return
	}
	if batteries, _ := filepath.Glob("/sys/class/power_supply/BAT*"); len(batteries) > 0 {
		d.add("sleep", levelWarn, "sudo systemctl mask sleep.target suspend.target, where it is to work with the lid closed", "a laptop may go to sleep, and its jobs with it; the runner goes on after it")
		return
	}
	d.add("sleep", levelOK, "", "no battery; nothing is known to put the machine to sleep")
}

// sleepsOnMac reads `pmset -g`: a line "sleep N", minutes, 0 for never.
func sleepsOnMac(out string) bool {
	for l := range strings.Lines(out) {
		if f := strings.Fields(l); len(f) >= 2 && f[0] == "sleep" {
			return f[1] != "0"
		}
	}
	return false
}
