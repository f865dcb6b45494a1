package worktree

import (
	"errors"
	"fmt"
	"strings"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// A Fault is a failure with a code of the closed set and a sentence for people: what happened, to what, and what to do
// next. errors.Is finds the code and the cause.
type Fault struct {
	Code  fleet.Code
	Text  string
	Cause error // what git said, for the log; may be nil
}

func (f *Fault) Error() string { return f.Text }

// Unwrap gives code and cause.
func (f *Fault) Unwrap() []error {
	if f.Cause == nil {
		return []error{f.Code}
	}
	return []error{f.Code, f.Cause}
}

func fault(code fleet.Code, cause error, format string, args ...any) error {
	return &Fault{Code: code, Text: fmt.Sprintf(format, args...), Cause: cause}
}

var (
	diskText = lazily(`(?i)no space left on device|disk quota exceeded`)
	authText = lazily(`(?i)authentication failed|could not read (username|password)|terminal prompts disabled|` +
		`permission denied|returned error: 40[137]|host key verification failed|access denied|access rights to .* denied|` +
		`dubious ownership|invalid (credentials|username or (token|password))|HTTP Basic: Access denied`)
	missingText = lazily(`(?i)repository .*not found|not found: did you run|project .*not be found|` +
		`does not appear to be a git repository|returned error: 4(04|10)|no such file or directory|repository .* does not exist`)
	refText = lazily(`(?i)couldn't find remote ref|not our ref|no such remote ref|unadvertised object`)
	// Without one of these a failure of a transfer is this machine's own, and the cache is looked at.
	netText = lazily(`(?i)could not resolve|connection (refused|reset|timed out|closed)|timed out|failed to connect|` +
		`couldn't connect|network is unreachable|no route to host|early eof|hung up|RPC failed|returned error: |` +
		`\bSSL\b|\bTLS\b|certificate|operation too slow|unable to access|could not read from remote|proxy|unexpected disconnect`)
	policyText = lazily(`(?i)transport '.*' not allowed`)
	brokenText = lazily(`(?i)corrupt|bad object|bad tree|invalid object|missing (blob|tree|commit)|not a git repository|` +
		`unable to read|could not read (tree|commit|object)|is empty|does not match index|inflate|unable to parse|` +
		`not point to a valid object|bad (config|signature|revision)|unresolved delta|all necessary objects|` +
		`object directory|index file|packfile|pack has|garbage|broken|object file|failed to (read|traverse)|unable to find`)
)

func damageText(stderr string) bool { return brokenText().MatchString(stderr) }

// classify turns the failure of a command that spoke to a remote into a coded one. A failure that is none of the
// remote's stays as it is.
func classify(remote string, err error) error {
	var coded *Fault
	var failed *gitError
	if err == nil || errors.As(err, &coded) || !errors.As(err, &failed) {
		return err
	}
	at, said := Redact(remote), failed.stderr
	switch {
	case errors.Is(err, process.ErrStalled):
		return fault(fleet.RepoUnreachable, err, "%s sent nothing for too long and was given up; check the network between this machine and the server, then retry", at)
	case failed.exit < 0:
		return err
	case diskText().MatchString(said):
		return fault(fleet.Storage, err, "there is no space left on this machine for %s; free some and retry", at)
	case policyText().MatchString(said):
		return fault(fleet.OwnerPolicy, err, "%s needs a transport that this runner does not allow (%s); use https or ssh", at, lastLine(said))
	case strings.Contains(said, "Host key verification failed"):
		return fault(fleet.RepoAuth, err, "the ssh host key of %s is not known on this machine; connect to it once by hand with ssh and accept the key, then retry", at)
	case strings.Contains(said, "dubious ownership"):
		return fault(fleet.RepoAuth, err, "%s belongs to another user; add it to git's safe.directory on this machine, then retry", at)
	case authText().MatchString(said):
		return fault(fleet.RepoAuth, err, "%s refused this machine's credentials (%s); set up a git credential helper or an ssh key for the runner's user, then retry", at, lastLine(said))
	case refText().MatchString(said):
		return fault(fleet.RefMissing, err, "%s does not have what was asked for (%s); check the ref or commit, and that it was pushed", at, lastLine(said))
	case missingText().MatchString(said):
		return fault(fleet.RepoMissing, err, "%s is no repository that this machine can see; check the address, and that its account may read it (private ones look missing)", at)
	case netText().MatchString(said):
		return fault(fleet.RepoUnreachable, err, "%s cannot be reached (%s); check network, proxy and certificates of this machine, then retry", at, lastLine(said))
	}
	return err
}

// lastLine gives the line of git's message that says most: the last that begins with fatal, error or remote.
func lastLine(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	best := lines[len(lines)-1]
	for _, l := range lines {
		if strings.HasPrefix(l, "fatal: ") || strings.HasPrefix(l, "error: ") || strings.HasPrefix(l, "ERROR: ") {
			best = l
		}
	}
	if len(best) > 300 {
		best = best[:300] + "…"
	}
	return strings.ToValidUTF8(best, "\uFFFD")
}
