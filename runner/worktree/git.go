package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/runner/process"
)

// settings hold for every git command that is run here: no hook, no background work, no question, no signature, and
// nothing that an agent's configuration could have git start.
var settings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.askPass=", "core.safecrlf=false",
	"core.commitGraph=false", "core.untrackedCache=false", "gc.auto=0", "maintenance.auto=false", "commit.gpgSign=false", "tag.gpgSign=false",
	"push.gpgSign=false", "push.followTags=false", "fetch.recurseSubmodules=false", "submodule.recurse=false",
	// An agent's settings must not have git pass over files: those outside of a sparse checkout, and changes that leave
	// size and time alone.
	"core.sparseCheckout=false", "core.trustctime=true", "core.checkStat=default", "core.ignoreStat=false",
	"diff.ignoreSubmodules=dirty", "i18n.commitEncoding=UTF-8", "i18n.logOutputEncoding=UTF-8",
	"status.showUntrackedFiles=normal", "advice.detachedHead=false",
	// Without it git takes every update of a branch for a fast-forward.
	"fetch.showForcedUpdates=true",
}

// inherited are the only GIT_ variables taken over from the caller's environment: how to reach a server, where the
// user's configuration is. Any other could point git at another repository, index or program.
var inherited = map[string]bool{
	"GIT_SSL_CAINFO": true, "GIT_SSL_CAPATH": true, "GIT_SSL_CERT": true, "GIT_SSL_KEY": true,
	"GIT_PROXY_SSL_CAINFO": true, "GIT_PROXY_SSL_CERT": true, "GIT_PROXY_SSL_KEY": true,
	"GIT_HTTP_PROXY_AUTHMETHOD": true, "GIT_EXEC_PATH": true,
	"GIT_CONFIG_GLOBAL": true, "GIT_CONFIG_SYSTEM": true, "GIT_CONFIG_NOSYSTEM": true,
}

// A git runs git commands with one environment.
type git struct {
	env   []string
	flags []string // -c NAME=VALUE …
	stall time.Duration
	lfs   bool // git-lfs is installed
}

func newGit(base []string, stall time.Duration) git {
	var env []string
	ssh, certs, hasCA := "ssh", "", false
	for _, kv := range base {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case name == "GIT_SSH_COMMAND" && value != "":
			ssh = value
			continue
		case strings.HasPrefix(name, "GIT_") && !inherited[name],
			name == "SSH_ASKPASS", name == "SSH_ASKPASS_REQUIRE", name == "LANGUAGE", name == "LC_ALL":
			continue
		case name == "SSL_CERT_FILE":
			certs = value
		case name == "GIT_SSL_CAINFO":
			hasCA = true
		}
		env = append(env, kv)
	}
	if certs != "" && !hasCA {
		// The curl that git is built with does not always read SSL_CERT_FILE itself.
		env = append(env, "GIT_SSL_CAINFO="+certs)
	}
	env = append(env,
		// Messages are classified by their English text.
		"LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GCM_INTERACTIVE=never", "SSH_ASKPASS_REQUIRE=never",
		"GIT_SSH_COMMAND="+ssh+" -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15 -o ServerAliveCountMax=4",
		"GIT_ALLOW_PROTOCOL=https:ssh", "GIT_OPTIONAL_LOCKS=0", "GIT_PAGER=cat", "GIT_EDITOR=:",
		// Replaced and grafted history must not take part in what is proved about a result.
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_GRAFT_FILE=/dev/null", "GIT_LITERAL_PATHSPECS=1", "GIT_LFS_SKIP_SMUDGE=1",
	)
	g := git{env: env, stall: stall}
	if stall > 0 {
		// Also for the transfers that git starts by itself and shows no progress of.
		seconds := max(int(stall/time.Second), 1)
		g.env = append(g.env, "GIT_HTTP_LOW_SPEED_LIMIT=1", "GIT_HTTP_LOW_SPEED_TIME="+strconv.Itoa(seconds))
	}
	for _, kv := range settings {
		g.flags = append(g.flags, "-c", kv)
	}
	if runtime.GOOS != "darwin" {
		// Names that differ in their case alone are files of their own here.
		g.flags = append(g.flags, "-c", "core.ignoreCase=false")
	}
	if _, err := process.LookPath("git-lfs", env); err == nil {
		g.lfs = true
	} else {
		// A configuration that outlived the tool would make every checkout fail.
		for _, kv := range []string{"filter.lfs.process=", "filter.lfs.smudge=", "filter.lfs.clean=", "filter.lfs.required=false"} {
			g.flags = append(g.flags, "-c", kv)
		}
	}
	return g
}

// with gives a git whose environment has more variables; a later one of the same name wins.
func (g git) with(env ...string) git {
	g.env = merge(g.env, env)
	return g
}

// in gives a git that works on exactly this git directory, whatever lies at the path it runs in.
func (g git) in(gitDir string) git { return g.with("GIT_DIR=" + gitDir) }

// merge replaces variables of the same name, so that none is there twice.
func merge(env, more []string) []string {
	out := make([]string, 0, len(env)+len(more))
	names := make(map[string]bool, len(more))
	for _, kv := range more {
		name, _, _ := strings.Cut(kv, "=")
		names[name] = true
	}
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); !names[name] {
			out = append(out, kv)
		}
	}
	return append(out, more...)
}

// A call is one git command.
type call struct {
	dir      string
	args     []string
	stdin    io.Reader
	stdout   io.Writer // nil: the output is returned
	stall    time.Duration
	progress func(string)
	remote   string // address that the command speaks to, for the wording of a failure; "" is none
}

// A gitError is a git command that failed.
type gitError struct {
	verb   string
	exit   int
	stderr string
	err    error
}

func (e *gitError) Error() string {
	text := "git " + e.verb + ": "
	if said := strings.TrimSpace(e.stderr); said != "" {
		return text + strings.ReplaceAll(said, "\n", "; ")
	}
	return text + e.err.Error()
}

func (e *gitError) Unwrap() error { return e.err }

// run gives what a command wrote to standard output. The error is or wraps a *gitError.
func (g git) run(ctx context.Context, c call) (string, error) {
	var out bytes.Buffer
	stderr := &transcript{progress: c.progress}
	cmd := process.Cmd{
		Argv: append(append([]string{"git"}, g.flags...), c.args...), Dir: c.dir, Env: g.env,
		Stdin: c.stdin, Stdout: c.stdout, Stderr: stderr, Stall: c.stall, Grace: 5 * time.Second,
	}
	if c.stdout == nil {
		cmd.Stdout = &out
	}
	res, err := process.Run(ctx, cmd)
	if err != nil {
		err = &gitError{verb: c.args[0], exit: res.ExitCode, stderr: stderr.text(), err: err}
		if c.remote != "" {
			err = classify(c.remote, err)
		}
		return out.String(), err
	}
	return out.String(), nil
}

// line runs a quiet local command and gives its output without the last newline.
func (g git) line(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := g.run(ctx, call{dir: dir, args: args})
	return strings.TrimSuffix(out, "\n"), err
}

// list runs a command that separates its output by NUL.
func (g git) list(ctx context.Context, dir string, args ...string) ([]string, error) {
	out, err := g.run(ctx, call{dir: dir, args: args})
	return fields(out), err
}

func fields(out string) []string {
	out = strings.TrimSuffix(out, "\x00")
	if out == "" {
		return nil
	}
	return strings.Split(out, "\x00")
}

// yes runs a command whose exit status is the answer: 0 yes, 1 no.
func (g git) yes(ctx context.Context, dir string, args ...string) (bool, error) {
	_, err := g.run(ctx, call{dir: dir, args: args})
	var failed *gitError
	if errors.As(err, &failed) && failed.exit == 1 {
		return false, nil
	}
	return err == nil, err
}

// commit resolves a name to a commit; "" if there is none.
func (g git) commit(ctx context.Context, dir, name string) (string, error) {
	out, err := g.line(ctx, dir, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	var failed *gitError
	if errors.As(err, &failed) && failed.exit > 0 && failed.exit != 129 && !damageText(failed.stderr) {
		return "", nil
	}
	return out, err
}

// lookUp resolves many names with one command; one that leads nowhere gives "".
func (g git) lookUp(ctx context.Context, dir string, names ...string) ([]string, error) {
	out, err := g.run(ctx, call{dir: dir, stdin: strings.NewReader(strings.Join(names, "\n") + "\n"),
		args: []string{"cat-file", "--batch-check=%(objectname)"}})
	if err != nil {
		return nil, err
	}
	found := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(found) != len(names) {
		return nil, fmt.Errorf("look up %d names: git answered %d", len(names), len(found))
	}
	for i, sha := range found {
		if !isSHA(sha) {
			found[i] = ""
		}
	}
	return found, nil
}

// tree gives the tree of a commit.
func (g git) tree(ctx context.Context, dir, commit string) (string, error) {
	return g.line(ctx, dir, "rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{tree}")
}

// isAncestor says whether b can be reached from descendant d.
func (g git) isAncestor(ctx context.Context, dir, b, d string) (bool, error) {
	return g.yes(ctx, dir, "merge-base", "--is-ancestor", b, d)
}

func (g git) userIdentity(ctx context.Context, dir string) Identity {
	name, _ := g.line(ctx, dir, "config", "--get", "user.name")
	email, _ := g.line(ctx, dir, "config", "--get", "user.email")
	if name == "" || email == "" {
		return Identity{Name: "Tugline Runner", Email: "runner@tugline.invalid"}
	}
	return Identity{Name: name, Email: email}
}

// as gives a git whose commits carry an identity.
func (g git) as(id Identity) git {
	return g.with("GIT_AUTHOR_NAME="+id.Name, "GIT_AUTHOR_EMAIL="+id.Email,
		"GIT_COMMITTER_NAME="+id.Name, "GIT_COMMITTER_EMAIL="+id.Email)
}

const (
	transcriptLines = 40
	progressPeriod  = 250 * time.Millisecond
)

// A transcript keeps the last lines of standard error and passes progress on, at most four times a second. Lines that
// a carriage return ends are progress and are not kept.
type transcript struct {
	progress func(string)

	mu    sync.Mutex
	part  []byte
	lines []string
	told  time.Time
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	var detail string
	for _, c := range p {
		if c != '\n' && c != '\r' {
			if len(t.part) < 4096 {
				t.part = append(t.part, c)
			}
			continue
		}
		if s := strings.TrimSpace(string(t.part)); s != "" {
			detail = s
			if c == '\n' {
				t.keep(s)
			}
		}
		t.part = t.part[:0]
	}
	tell := detail != "" && t.progress != nil && time.Since(t.told) >= progressPeriod
	if tell {
		t.told = time.Now()
	}
	t.mu.Unlock()
	if tell {
		t.progress(strings.ToValidUTF8(detail, "\uFFFD"))
	}
	return len(p), nil
}

func (t *transcript) keep(s string) {
	if len(t.lines) == transcriptLines {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines = append(t.lines, s)
}

func (t *transcript) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := strings.TrimSpace(string(t.part)); s != "" {
		t.keep(s)
		t.part = t.part[:0]
	}
	return strings.Join(t.lines, "\n")
}
