package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// specOf checks what was asked for, whole, and completes it with the defaults.
// eligible lists the harnesses that some runner has, for the refusal; known checks
// the name of one.
func specOf(in api.Submit, settings map[string]string, eligible func() []string, known func(string) error) (fleet.Spec, error) {
	s := fleet.Spec{
		Kind: in.Kind, Origin: fleet.Origin{Kind: fleet.Manual}, ConcurrencyKey: in.ConcurrencyKey, Repo: in.Repo,
		Harness: in.Harness, Model: in.Model, Permissions: in.Permissions, Argv: in.Argv, On: in.On,
		Require: in.Require, Env: in.Env, Secrets: in.Secrets, Push: in.Push, Commit: in.Commit, OnLost: in.OnLost,
	}
	if in.Automation != "" {
		s.Origin = fleet.Origin{Kind: fleet.Automation, Name: in.Automation}
	}
	orSet(&s.OnLost, "hold")
	orSet(&s.Commit, "auto")
	orSet(&s.Permissions, fleet.PermWorkspace)
	switch in.Kind {
	case fleet.KindAgent:
		if err := checkPrompt(in.Prompt); err != nil {
			return s, err
		}
		if len(in.Argv) > 0 {
			return s, wrong(fleet.BadRequest, "argv belongs to kind exec; an agent gets a prompt")
		}
		orSet(&s.Harness, settings["default_harness"])
		if s.Harness == "" {
			have := eligible()
			if len(have) == 0 {
				return s, wrong(fleet.BadRequest, "no harness was named, the hub has no default, and no runner offers an agent; start a runner that has codex, claude or opencode installed")
			}
			return s, wrong(fleet.BadRequest, "no harness was named and the hub has no default; give --harness with one of: %s", strings.Join(have, ", "))
		}
		if s.Harness == "exec" {
			return s, wrong(fleet.BadRequest, "the harness exec runs a command, not a prompt; use `tugline exec -- ARGV`")
		}
		if err := known(s.Harness); err != nil {
			return s, err
		}
	case fleet.KindExec:
		if err := checkArgv(in.Argv); err != nil {
			return s, err
		}
		if in.Prompt != "" {
			return s, wrong(fleet.BadRequest, "a prompt belongs to kind agent; exec gets an argv")
		}
		orSet(&s.Harness, "exec")
		if err := known(s.Harness); err != nil {
			return s, err
		}
		if s.Harness != "exec" {
			return s, wrong(fleet.BadRequest, "the harness %s runs a prompt, not a command; use `tugline run`", s.Harness)
		}
	default:
		return s, wrong(fleet.BadRequest, "kind %q is neither agent nor exec", in.Kind)
	}
	if s.Permissions.Rank() == 0 {
		return s, wrong(fleet.BadRequest, "permissions %q is none of read, workspace, full", s.Permissions)
	}
	if s.OnLost != "hold" && s.OnLost != "rerun" {
		return s, wrong(fleet.BadRequest, "on_lost %q is neither hold nor rerun", s.OnLost)
	}
	if s.Commit != "auto" && s.Commit != "never" {
		return s, wrong(fleet.BadRequest, "commit %q is neither auto nor never", s.Commit)
	}
	if err := checkRepo(s.Repo, s.Push, s.On); err != nil {
		return s, err
	}
	if err := checkWords(s); err != nil {
		return s, err
	}
	if err := checkEnv(s.Env, s.Secrets); err != nil {
		return s, err
	}
	if err := session(&s, &in); err != nil {
		return s, err
	}
	if err := place(&s, in, settings[fleet.SettingModelPriority], known); err != nil {
		return s, err
	}
	return s, timeouts(&s, in)
}

// quote writes what was given into a refusal, but not at any length.
func quote(s string) string {
	const most = 80 // characters
	if r := []rune(s); len(r) > most {
		return fmt.Sprintf("%q… (%d bytes)", string(r[:most]), len(s))
	}
	return strconv.Quote(s)
}

func orSet[T ~string](v *T, d T) {
	if *v == "" {
		*v = d
	}
}

func checkPrompt(p string) error {
	switch {
	case strings.TrimSpace(p) == "":
		return wrong(fleet.BadRequest, "the prompt is empty")
	case len(p) > fleet.MaxPrompt:
		return wrong(fleet.TooLarge, "the prompt is %d bytes; at most %d: put long material in the repository and name the file", len(p), fleet.MaxPrompt)
	case !utf8.ValidString(p):
		return wrong(fleet.BadRequest, "the prompt is not UTF-8 text")
	case strings.ContainsRune(p, 0):
		return wrong(fleet.BadRequest, "the prompt has a NUL character, which no program can be given; take it out")
	}
	return nil
}

func argvBytes(argv []string) int {
	n := 0
	for _, a := range argv {
		n += len(a) + 1
	}
	return n
}

func checkArgv(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return wrong(fleet.BadRequest, "the command is empty; give it after --: `tugline exec -- make test`")
	}
	if n := argvBytes(argv); n > fleet.MaxArgv {
		return wrong(fleet.TooLarge, "the argv is %d bytes; at most %d: put long input in a file", n, fleet.MaxArgv)
	}
	for i, a := range argv {
		if strings.ContainsRune(a, 0) {
			return wrong(fleet.BadRequest, "argv word %d has a NUL byte", i)
		}
	}
	return nil
}

// checkRepo looks at what git would later be given: no options in disguise, no
// credentials, no ref that git would refuse.
func checkRepo(r *fleet.Repo, push, on string) error {
	if r == nil {
		if push != "" {
			return wrong(fleet.BadRequest, "push needs a repository; give --repo")
		}
		return nil
	}
	switch {
	case r.URL == "" && r.Bundle == "" && (r.CacheKey == "" || r.BaseCommit == "" || on == ""):
		return wrong(fleet.BadRequest, "the repository has neither a URL nor a bundle; without both, only a commit (base_commit, cache_key) that a runner named with on has already will do")
	case r.Bundle != "" && !r.Bundle.Valid():
		return wrong(fleet.BadRequest, "the bundle %q is not a SHA-256 in lower-case hex", r.Bundle)
	case r.URL == "" && !commitID(r.CacheKey):
		return wrong(fleet.BadRequest, "a repository without a URL needs its root commit as cache_key")
	case r.BaseCommit != "" && !commitID(r.BaseCommit):
		return wrong(fleet.BadRequest, "base_commit %q is not a commit id", r.BaseCommit)
	case len(r.ExtraRefs) > 50:
		return wrong(fleet.TooLarge, "%d extra refs; at most 50", len(r.ExtraRefs))
	case r.Depth < 0:
		return wrong(fleet.BadRequest, "depth %d is below zero", r.Depth)
	case push != "" && r.URL == "":
		return wrong(fleet.BadRequest, "push needs a repository with a URL; this one has only a bundle: use `tugline job pull` instead")
	}
	if err := checkURL(r.URL); err != nil {
		return err
	}
	for _, ref := range append([]string{r.Ref, r.Branch, r.Upstream, push}, r.ExtraRefs...) {
		if ref != "" && !goodRef(ref) {
			return wrong(fleet.BadRequest, "%s is not a name that git allows for a branch or ref", quote(ref))
		}
	}
	for what, name := range map[string]string{"branch": r.Branch, "push": push} {
		if strings.HasPrefix(name, "refs/") {
			return wrong(fleet.BadRequest, "%s %s: give the branch's name without refs/heads/", what, quote(name))
		}
		if name == "HEAD" || strings.HasPrefix(name, "+") {
			return wrong(fleet.BadRequest, "%s %s is not the name of a branch; a push is never by force", what, quote(name))
		}
	}
	return nil
}

var scp = lazily(`^[A-Za-z0-9._][A-Za-z0-9._-]*@[A-Za-z0-9._][A-Za-z0-9._-]*:[^-].*$`)

func checkURL(u string) error {
	if u == "" || scp().MatchString(u) {
		return nil
	}
	if strings.HasPrefix(u, "-") || len(u) > 2048 || strings.ContainsAny(u, "\x00\n\r\t") {
		return wrong(fleet.BadRequest, "the repository URL %s is not one", quote(u))
	}
	if path.IsAbs(u) {
		return nil
	}
	p, err := url.Parse(u)
	if err != nil || p.Scheme == "" {
		return wrong(fleet.BadRequest, "the repository %s is neither a URL nor an absolute path", quote(u))
	}
	switch p.Scheme {
	case "https", "ssh", "file":
	default:
		return wrong(fleet.BadRequest, "the repository URL has the scheme %q; git is used with https, ssh and file", p.Scheme)
	}
	if p.Scheme != "file" && (p.Hostname() == "" || strings.HasPrefix(p.Hostname(), "-")) {
		return wrong(fleet.BadRequest, "the host of the repository URL, %s, is not one", quote(p.Hostname()))
	}
	if strings.HasPrefix(p.User.Username(), "-") {
		return wrong(fleet.BadRequest, "the user of the repository URL begins with a dash")
	}
	if _, secret := p.User.Password(); secret || p.User != nil && p.Scheme != "ssh" {
		return wrong(fleet.BadRequest, "the repository URL carries credentials, which would be recorded; leave them out: the runner's own git credentials are used")
	}
	return nil
}

func commitID(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	_, err := hex.DecodeString(s)
	return err == nil && strings.ToLower(s) == s
}

// goodRef is git's own rule for ref names, and no leading dash.
func goodRef(r string) bool {
	if len(r) > 255 || strings.HasPrefix(r, "-") || strings.HasPrefix(r, "/") || strings.HasSuffix(r, "/") ||
		strings.HasSuffix(r, ".") || strings.Contains(r, "..") || strings.Contains(r, "//") || strings.Contains(r, "@{") || r == "@" {
		return false
	}
	for _, c := range []byte(r) {
		if c < 0x20 || c == 0x7f || strings.IndexByte(" ~^:?*[\\", c) >= 0 {
			return false
		}
	}
	for part := range strings.SplitSeq(r, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

var word = lazily(`^[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,199}$`)

func checkWords(s fleet.Spec) error {
	for what, w := range map[string]string{"harness": s.Harness, "model": s.Model, "on": s.On, "concurrency_key": s.ConcurrencyKey, "automation": s.Origin.Name} {
		if w != "" && !word().MatchString(w) {
			return wrong(fleet.BadRequest, "%s %s may have letters, digits and . _ / : @ + - only, at most 200", what, quote(w))
		}
	}
	if len(s.Require) > 32 {
		return wrong(fleet.TooLarge, "%d required labels; at most 32", len(s.Require))
	}
	for k, v := range s.Require {
		if !word().MatchString(k) || len(v) > 200 {
			return wrong(fleet.BadRequest, "the required label %s is not of the form k=v, or its value is over 200 bytes", quote(k))
		}
	}
	return nil
}

var (
	envName    = lazily(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	secretName = lazily(`(?i)(KEY|TOKEN|SECRET|PASSWORD)`)
	secretText = lazily(`(?i)(^|[^a-z0-9])(sk-[a-z0-9_-]{16,}|gh[pousr]_[a-z0-9]{20,}|github_pat_[a-z0-9_]{20,}|glpat-[a-z0-9_-]{16,}|AKIA[0-9A-Z]{16}|xox[abprs]-[a-z0-9-]{10,}|tgl_[a-z0-9_-]{20,})|-----BEGIN [A-Z ]*PRIVATE KEY-----`)
)

// checkEnv refuses values that look like credentials: the environment of a job is
// recorded and shown, a secret is named and resolved on the runner.
func checkEnv(env map[string]string, secrets []string) error {
	if len(env) > fleet.MaxEnv {
		return wrong(fleet.TooLarge, "%d environment entries; at most %d", len(env), fleet.MaxEnv)
	}
	size := 0
	for _, k := range slices.Sorted(maps.Keys(env)) {
		v := env[k]
		size += len(k) + len(v) + 2
		switch {
		case !envName().MatchString(k):
			return wrong(fleet.BadRequest, "%s is not a name for an environment entry", quote(k))
		case strings.ContainsRune(v, 0):
			return wrong(fleet.BadRequest, "the environment entry %s has a NUL byte", k)
		case strings.HasPrefix(k, "TUGLINE_"):
			return wrong(fleet.BadRequest, "the environment entry %s is Tugline's own; choose another name", k)
		case secretName().MatchString(k) && len(v) >= 8 || secretText().MatchString(v):
			return wrong(fleet.BadRequest, "the environment entry %s looks like a credential, and a job's environment is recorded; keep it in the runner's own store and name it with --secret %s", k, k)
		}
	}
	if size > fleet.MaxEnvBytes {
		return wrong(fleet.TooLarge, "the environment is %d bytes; at most %d", size, fleet.MaxEnvBytes)
	}
	if len(secrets) > 32 {
		return wrong(fleet.TooLarge, "%d secrets; at most 32", len(secrets))
	}
	for _, n := range secrets {
		if !envName().MatchString(n) {
			return wrong(fleet.BadRequest, "%s is not a name for a secret", quote(n))
		}
	}
	return nil
}

func timeouts(s *fleet.Spec, in api.Submit) error {
	for _, t := range []struct {
		name, text string
		to         *time.Duration
	}{
		{"timeout", in.Timeout, &s.Timeouts.Total}, {"idle_timeout", in.IdleTimeout, &s.Timeouts.Idle},
		{"first_response_timeout", in.FirstTimeout, &s.Timeouts.First}, {"queue_timeout", in.QueueTimeout, &s.Timeouts.Queue},
	} {
		if t.text == "" {
			continue
		}
		d, err := time.ParseDuration(t.text)
		if err != nil || d < 0 || d > 30*24*time.Hour || d > 0 && d < time.Second {
			return wrong(fleet.BadRequest, "%s %q is not a duration from 1s to 720h, such as 90s or 2h; 0 means none", t.name, t.text)
		}
		if d == 0 {
			d = -1
		}
		*t.to = d
	}
	if s.Timeouts.Total == 0 {
		s.Timeouts.Total = fleet.DefaultTimeout
	}
	if s.Kind == fleet.KindAgent {
		if s.Timeouts.Idle == 0 {
			s.Timeouts.Idle = fleet.DefaultIdle
		}
		if s.Timeouts.First == 0 {
			s.Timeouts.First = fleet.DefaultFirst
		}
	}
	return nil
}

// keep stores bytes as a blob, durable before it returns.
func (s *Server) keep(ctx context.Context, b []byte) (fleet.Digest, error) {
	sum := sha256.Sum256(b)
	d := fleet.Digest(hex.EncodeToString(sum[:]))
	if err := s.cfg.Blobs.Put(ctx, d, int64(len(b)), bytes.NewReader(b)); err != nil {
		return "", fmt.Errorf("store input: %w", err)
	}
	return d, nil
}

func (s *Server) keepArgv(ctx context.Context, argv []string) (fleet.Digest, error) {
	b, err := json.Marshal(argv)
	if err != nil {
		return "", err
	}
	return s.keep(ctx, b)
}

// harnesses are those that this release of a runner may have.
var harnesses = []string{"exec", "codex", "claude", "opencode"}

// knownHarness refuses the name of a harness that neither this release nor any
// runner has: its job would wait for ever.
func (s *Server) knownHarness(name string) error {
	known := slices.Clone(harnesses)
	for _, r := range s.cfg.Log.View().Runners() {
		for _, h := range r.Facts.Harnesses {
			if !slices.Contains(known, h.Name) {
				known = append(known, h.Name)
			}
		}
	}
	if slices.Contains(known, name) {
		return nil
	}
	return wrong(fleet.BadRequest, "there is no harness %s; there are %s", quote(name), strings.Join(known, ", "))
}

// eligible lists the agent harnesses that some runner has and is signed in to.
func (s *Server) eligible() []string {
	set := map[string]bool{}
	for _, r := range s.cfg.Log.View().Runners() {
		for _, h := range r.Facts.Harnesses {
			if h.Name != "exec" && h.SignedIn != "no" {
				set[h.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}
