package harness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// Found is what Detect says of one harness.
type Found = fleet.HarnessInfo

// The words of Found.SignedIn. Yes means that credentials are there, not that they still work: to know that would
// take a request to the provider.
const (
	SignedInYes     = "yes"
	SignedInNo      = "no"
	SignedInUnknown = "unknown"
)

// probeTime bounds each question put to a CLI, unless told otherwise. The first start of
// a CLI of 100 MB beside jobs that keep every core busy takes more than ten seconds.
const probeTime = 45 * time.Second

// DetectRequest says where to look.
type DetectRequest struct {
	Env   []string          // the service's own environment
	Paths map[string]string // by harness name: the owner's absolute paths, instead of a search
	Home  string            // "" is HOME of Env
	// Given is put over Env for one harness alone, by its name.
	Given map[string][]string
	All   bool // tell those too that are missing or do not run: they have no Path, and Detail says why
	// Known is what an earlier look found: a CLI that is still there and only does not
	// answer in time is told as it was.
	Known []Found
	// Slow is told which CLIs did not answer in time; it may be called from several
	// goroutines at once. It may be nil.
	Slow func(name string)
	// Patience bounds each question put to a CLI; 0 is 45 s.
	Patience time.Duration
}

// Detect looks which harnesses can be used here. It asks each CLI for its version and, where the CLI can tell that
// without a request to its provider, whether it is signed in. It takes at most a few times Patience.
func Detect(ctx context.Context, r DetectRequest) []Found {
	if r.Home == "" {
		r.Home, _ = envValue(r.Env, "HOME")
	} else {
		r.Env = append(append([]string{}, r.Env...), "HOME="+r.Home)
	}
	found := make([]*Found, len(catalogue))
	var wg sync.WaitGroup
	for i, h := range catalogue {
		wg.Go(func() {
			p := &probe{ctx: ctx, env: append(slices.Clone(r.Env), r.Given[h.Name]...), home: r.Home, patience: cmp.Or(r.Patience, probeTime)}
			f, err := h.detect(p, r.Paths[h.Name])
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				if r.Slow != nil {
					r.Slow(h.Name)
				}
				for _, k := range r.Known {
					if k.Name == h.Name && k.Path != "" && k.Path == p.path {
						found[i] = &k
						return
					}
				}
			}
			if err != nil {
				if !r.All {
					return
				}
				f = Found{SignedIn: SignedInUnknown, Detail: fleet.CutText(err.Error(), fleet.MaxDetail)}
			}
			f.Name = h.Name
			f.Capabilities = append([]string{}, h.Capabilities...)
			found[i] = &f
		})
	}
	wg.Wait()
	var out []Found
	for _, f := range found {
		if f != nil {
			out = append(out, *f)
		}
	}
	return out
}

var (
	versionRE  = lazily(`\b(\d+\.\d+\.\d+[0-9A-Za-z.+-]*)`)
	errMissing = errors.New("not found")
)

// Missing says of what has no path that nothing is there of that name, and not that what
// is there does not run.
func Missing(f Found) bool {
	return slices.ContainsFunc(catalogue, func(h *Harness) bool {
		return h.Name == f.Name && strings.HasPrefix(f.Detail, h.program+": "+errMissing.Error())
	})
}

func (h *Harness) detect(p *probe, override string) (Found, error) {
	if h.program == "" {
		return Found{SignedIn: SignedInYes}, nil
	}
	path, detail, err := p.find(h.program, override)
	if err != nil {
		return Found{}, err
	}
	if native := h.native(path); native != path {
		detail = joined(detail, "behind the wrapper "+path)
		path = native
	}
	p.path = path
	out, err := p.run(path, "--version")
	if err != nil {
		return Found{}, fmt.Errorf("%s does not run: %w", path, err)
	}
	m := h.version().FindSubmatch(out)
	if m == nil {
		return Found{}, fmt.Errorf("%s does not tell a version, it says %q", path, fleet.CutText(string(bytes.TrimSpace(out)), 80))
	}
	f := Found{Path: path, Version: string(m[1])}
	p.version = f.Version
	how := ""
	f.SignedIn, how = h.signedIn(p, path)
	f.Account = h.Account(append(slices.Clone(p.env), "HOME="+p.home))
	f.Detail = fleet.CutText(joined(how, detail), fleet.MaxDetail)
	return f, nil
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// probe asks one CLI.
type probe struct {
	ctx     context.Context
	env     []string
	home    string
	version string
	path    string // of the program that is asked

	patience time.Duration
}

// elsewhere are folders where installers put CLIs and that a service's bare PATH lacks.
var elsewhere = []string{"~/.local/bin", "~/.claude/local", "~/.opencode/bin", "~/.bun/bin", "~/.npm-global/bin", "~/bin",
	"/usr/local/bin", "/opt/homebrew/bin"}

// find gives the real path of a program.
func (p *probe) find(program, override string) (path, detail string, err error) {
	if override != "" {
		if !filepath.IsAbs(override) {
			return "", "", fmt.Errorf("path %q of %s is not absolute; mend it in runner.yaml", override, program)
		}
		path, err = process.LookPath(override, p.env)
	} else if path, err = process.LookPath(program, p.env); err != nil {
		for _, dir := range elsewhere {
			if rest, ok := strings.CutPrefix(dir, "~"); ok {
				if p.home == "" {
					continue
				}
				dir = filepath.Join(p.home, rest)
			}
			if at, e := process.LookPath(filepath.Join(dir, program), p.env); e == nil {
				path, detail, err = at, "found in "+dir+", which is not in PATH", nil
				break
			}
		}
	}
	switch {
	case err != nil && override != "":
		return "", "", fmt.Errorf("%s: %w: %w", program, errMissing, err)
	case err != nil:
		return "", "", fmt.Errorf("%s: %w in PATH or the usual places; install it, or give its path in runner.yaml", program, errMissing)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", "", fmt.Errorf("%s: %w", program, err)
	}
	return path, detail, nil
}

// run asks the CLI something that needs no provider.
func (p *probe) run(argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(p.ctx, p.patience)
	defer cancel()
	env := append([]string{}, p.env...)
	env = append(env, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1")
	env = append(env, opencodeQuiet...)
	dir := p.home
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		dir = "/"
	}
	res, err := process.Run(ctx, process.Cmd{Argv: argv, Dir: dir, Env: env, Limit: 64 << 10})
	return res.Stdout, err
}

// set says whether one of the variables has a value, and which.
func (p *probe) set(names ...string) string {
	for _, n := range names {
		if v, _ := envValue(p.env, n); v != "" {
			return n
		}
	}
	return ""
}

// folder gives the value of a variable that names a folder, or a folder below home.
func (p *probe) folder(variable, below string) string {
	if v, _ := envValue(p.env, variable); v != "" {
		return v
	}
	return filepath.Join(p.home, below)
}

// small reads a settings file; nil if it can't be read or is no small file.
func small(path string) []byte {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() > 4<<20 {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return b
}
