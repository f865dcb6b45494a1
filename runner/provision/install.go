package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

const (
	installTime = 30 * time.Minute // of npm
	stallTime   = 10 * time.Minute // in which it says nothing
	askTime     = 2 * time.Minute  // of a new program's --version: the first start of a large one takes long
	programLink = "program"        // in a version's directory, to the program itself
	stampFile   = ".asked"         // likewise: by which asking it came
	builds      = "builds"         // likewise: where the installer puts browsers
	installer   = "2.13.2"         // the version of the package that installs browsers
)

// Request is one asking, as it was verified and allowed.
type Request struct {
	ID, What, Version string
	Source            string            // where builds of the browser come from; empty: their maker's
	Credentials       map[string]string // nil: those that are there stay
	Env               []string          // the runner's own; npm gets what it needs of it
	Mark              string            // of npm's processes, so that a later start finds what is left of them
	Hide              func(string) string
}

// pack is where a program comes from. Each brings its programs for the platforms as
// packages of their own, so that no script of any package needs to run.
type pack struct {
	name     string
	programs []string // patterns below node_modules; the first that runs is taken
}

func packOf(what string) pack {
	cpu := runtime.GOARCH
	if cpu == "amd64" {
		cpu = "x64"
	}
	at := runtime.GOOS + "-" + cpu
	switch what {
	case "codex":
		return pack{"@openai/codex", []string{"@openai/codex-" + at + "/vendor/*/bin/codex", "@openai/codex-" + at + "/vendor/*/codex/codex", "@openai/codex/vendor/*/codex/codex", ".bin/codex"}}
	case fleet.ProvisionBrowser:
		return pack{"@puppeteer/browsers", []string{"../" + builds + "/chrome/*/*/chrome", "../" + builds + "/chrome/*/*/*.app/Contents/MacOS/Google Chrome for Testing"}}
	case "claude":
		return pack{"@anthropic-ai/claude-code", []string{"@anthropic-ai/claude-code-" + at + "/claude", "@anthropic-ai/claude-code-" + at + "-musl/claude", ".bin/claude"}}
	default:
		return pack{"opencode-ai", []string{"opencode-" + at + "/bin/opencode", "opencode-" + at + "-*/bin/opencode", ".bin/opencode"}}
	}
}

// failure is an error with its class.
type failure struct {
	class string
	err   error
}

func (f *failure) Error() string { return f.err.Error() }

func failed(class, format string, args ...any) error {
	return &failure{class, fmt.Errorf(format, args...)}
}

// Install carries out an asking and gives its record, which is kept. Where ctx ends in
// the middle it stays as one that is being made, and the next Open ends it.
func (s *Store) Install(ctx context.Context, r Request) (Record, error) {
	rec := Record{ID: r.ID, What: r.What, State: Installs}
	if err := s.Put(rec); err != nil {
		return rec, err
	}
	version, err := s.install(ctx, r)
	if ctx.Err() != nil {
		return rec, context.Cause(ctx)
	}
	if err != nil {
		rec.State, rec.Class = Failed, fleet.ProvisionInstall
		if f := (*failure)(nil); errors.As(err, &f) {
			rec.Class = f.class
		}
		rec.Detail = plain(r.Hide(err.Error()))
		if err := os.RemoveAll(s.half(r.What, r.ID)); err != nil {
			rec.Detail += "; what is left of it can't be removed: " + err.Error()
		}
		return rec, s.Put(rec)
	}
	rec.State, rec.Installed = Succeeded, version
	return rec, s.Put(rec)
}

func (s *Store) install(ctx context.Context, r Request) (version string, err error) {
	half := s.half(r.What, r.ID)
	if err := os.MkdirAll(half, 0o700); err != nil {
		return "", failed(fleet.ProvisionStorage, "%w", err)
	}
	p := packOf(r.What)
	env := npmEnv(r.Env, r.Mark)
	if r.What == fleet.ProvisionBrowser {
		version, err = browser(ctx, half, p, r, env)
	} else {
		version, err = fromNPM(ctx, half, p, orLatest(r.Version), env)
	}
	if err != nil {
		return "", err
	}
	program, err := verify(ctx, half, p, version, env)
	if err != nil {
		return "", err
	}
	if err := os.Symlink(program, filepath.Join(half, programLink)); err != nil {
		return "", failed(fleet.ProvisionStorage, "%w", err)
	}
	if err := durable.Replace(filepath.Join(half, stampFile), []byte(r.ID+" "+version), 0o600); err != nil {
		return "", failed(fleet.ProvisionStorage, "%w", err)
	}
	if r.Credentials != nil {
		if err := s.keepCredentials(r.What, r.Credentials); err != nil {
			return "", failed(fleet.ProvisionStorage, "keep the credentials: %w", err)
		}
	}
	return version, s.put(r.What, half, version)
}

func fromNPM(ctx context.Context, half string, p pack, version string, env []string) (string, error) {
	if err := npm(ctx, half, p.name+"@"+version, env); err != nil {
		return "", err
	}
	version, err := versionOf(filepath.Join(half, "node_modules", p.name, "package.json"))
	if err != nil {
		return "", failed(fleet.ProvisionVerify, "npm brought no %s: %w", p.name, err)
	}
	return version, nil
}

// browser has npm bring the installer of browsers, and that one a Chrome. It gives the
// version of what came.
func browser(ctx context.Context, half string, p pack, r Request, env []string) (string, error) {
	if _, err := fromNPM(ctx, half, p, installer, env); err != nil {
		return "", err
	}
	version := r.Version
	if version == "" {
		version = "stable"
	}
	argv := []string{filepath.Join(half, "node_modules", ".bin", "browsers"), "install", "chrome@" + version, "--path", filepath.Join(half, builds)}
	if r.Source != "" {
		argv = append(argv, "--base-url", r.Source)
	}
	if err := run(ctx, half, "the installer of browsers", argv, env); err != nil {
		return "", err
	}
	found, _ := filepath.Glob(filepath.Join(half, builds, "chrome", "*-*")) // PLATFORM-VERSION; the pattern is good
	if len(found) != 1 {
		return "", failed(fleet.ProvisionVerify, "the installer brought %d browsers", len(found))
	}
	_, version, _ = strings.Cut(filepath.Base(found[0]), "-")
	if !isVersion(version) {
		return "", failed(fleet.ProvisionVerify, "the browser's version is no version")
	}
	return version, nil
}

// put moves a whole installation to its place and has the link lead to it. Of the others
// the one before stays: a job may just be starting with it.
func (s *Store) put(what, half, version string) error {
	name := version
	for i := 2; ; i++ {
		if _, err := os.Lstat(filepath.Join(s.of(what), name)); errors.Is(err, os.ErrNotExist) {
			break
		}
		name = fmt.Sprintf("%s_%d", version, i)
	}
	link := s.current(what)
	before, _ := os.Readlink(link) // none: nothing was there
	if err := os.Rename(half, filepath.Join(s.of(what), name)); err != nil {
		return failed(fleet.ProvisionStorage, "%w", err)
	}
	next := link + ".new"
	_ = os.Remove(next) // of an earlier try
	err := os.Symlink(name, next)
	if err == nil {
		err = os.Rename(next, link)
	}
	if err != nil {
		return failed(fleet.ProvisionStorage, "%w", err)
	}
	all, err := os.ReadDir(s.of(what))
	if err != nil {
		return nil // at worst old versions stay for longer
	}
	for _, e := range all {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && e.Name() != name && e.Name() != before {
			_ = os.RemoveAll(filepath.Join(s.of(what), e.Name()))
		}
	}
	return nil
}

func orLatest(version string) string {
	if version == "" {
		return "latest"
	}
	return version
}

// npm installs one package below a directory. No script of any package runs.
func npm(ctx context.Context, dir, spec string, env []string) error {
	return run(ctx, dir, "npm", []string{"npm", "install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--no-package-lock", "--global=false", "--loglevel=http", spec}, env)
}

func run(ctx context.Context, dir, name string, argv, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	res, err := process.Run(ctx, process.Cmd{
		Argv: argv, Dir: dir, Env: env, Limit: 256 << 10, Stall: stallTime, Grace: 5 * time.Second,
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, process.ErrNotFound):
		return failed(fleet.ProvisionNoNPM, "npm is not in the runner's PATH; install Node 18 or newer on the machine, and name its directory in the service's PATH")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, process.ErrStalled):
		return failed(fleet.ProvisionTimeout, "%s did not come to an end: %w", name, err)
	}
	return failed(fleet.ProvisionInstall, "%s ended with status %d: %s", name, res.ExitCode, lastLines(string(res.Stderr)))
}

// lastLines gives what npm says of its failure, without the notes of its requests.
func lastLines(s string) string {
	var said []string
	for l := range strings.Lines(s) {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "npm http ") && !strings.Contains(l, "A complete log of this run") {
			said = append(said, strings.TrimPrefix(l, "npm error "))
		}
	}
	return strings.Join(said[max(len(said)-6, 0):], "; ")
}

// verify runs what came: the first of the programs that tells the version is the one.
func verify(ctx context.Context, half string, p pack, version string, env []string) (string, error) {
	last := errors.New("it brought no program for " + runtime.GOOS + "/" + runtime.GOARCH)
	for _, pattern := range p.programs {
		found, _ := filepath.Glob(filepath.Join(half, "node_modules", pattern)) // the patterns are good
		slices.Sort(found)
		for _, file := range found {
			bound, cancel := context.WithTimeout(ctx, askTime)
			res, err := process.Run(bound, process.Cmd{Argv: []string{file, "--version"}, Dir: half, Env: env, Limit: 64 << 10})
			cancel()
			if err == nil && strings.Contains(string(res.Stdout), version) {
				return filepath.Rel(half, file)
			}
			if last = err; err == nil {
				last = fmt.Errorf("it says that it is %q", fleet.CutText(strings.TrimSpace(string(res.Stdout)), 80))
			}
		}
	}
	return "", failed(fleet.ProvisionVerify, "%s %s does not run here: %w", p.name, version, last)
}

// versionOf reads the version of a package as it lies there.
func versionOf(file string) (string, error) {
	b, err := readSmall(file)
	if err != nil {
		return "", err
	}
	return parseVersion(b)
}

func parseVersion(b []byte) (string, error) {
	var p struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return "", err
	}
	if !isVersion(p.Version) {
		return "", errors.New("its version is no version")
	}
	return p.Version, nil
}

func isVersion(s string) bool {
	return s != "" && '0' <= s[0] && s[0] <= '9' && fleet.IsProvisionVersion(s)
}

// npmNames are what npm and the programs need of the runner's own environment.
var npmNames = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_*", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
	"http_proxy", "https_proxy", "no_proxy", "all_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "npm_config_*", "NPM_CONFIG_*", "NPM_TOKEN",
}

func npmEnv(own []string, mark string) []string {
	var out []string
	for _, kv := range own {
		name, _, _ := strings.Cut(kv, "=")
		if slices.ContainsFunc(npmNames, func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
			out = append(out, kv)
		}
	}
	return append(out, process.MarkVariable+"="+mark, "DISABLE_AUTOUPDATER=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1")
}

var userInfo = regexp.MustCompile(`://[^/@\s]+@`)

// plain makes a text fit to be told: without names and passwords in addresses, and
// without control characters.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, userInfo.ReplaceAllString(s, "://***@"))
	return fleet.CutText(s, fleet.MaxDetail)
}
