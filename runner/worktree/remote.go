package worktree

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

var (
	scpForm    = lazily(`^(?:[A-Za-z0-9._~-]+@)?[A-Za-z0-9._\[\]:-]+?:[^:].*$`)
	helperForm = lazily(`^[A-Za-z0-9+.-]+::`)
	shaForm    = lazily(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	filterForm = lazily(`^(blob:none|blob:limit=[0-9]+[kmg]?|tree:[0-9]+)$`)
)

// checkURL accepts what this Store may fetch from or push to: https, ssh in both forms, and file URLs and absolute
// paths where the owner allows them. Credentials inside a URL are refused, because git would write them down.
func (s *Store) checkURL(raw string) error {
	if raw == "" || strings.HasPrefix(raw, "-") || strings.ContainsFunc(raw, func(r rune) bool { return r < ' ' || r == 0x7f }) ||
		helperForm().MatchString(raw) {
		return fault(fleet.BadRequest, nil, "%q is no repository address; give an https or ssh URL", raw)
	}
	if filepath.IsAbs(raw) {
		return s.checkProtocol("file", raw)
	}
	if strings.Contains(raw, "://") {
		u, err := url.Parse(raw)
		if err != nil {
			return fault(fleet.BadRequest, nil, "the repository address cannot be read as a URL; give an https or ssh URL")
		}
		if u.Scheme == "file" && (u.Host != "" || !filepath.IsAbs(u.Path)) {
			return fault(fleet.BadRequest, nil, "%q names no path on this machine; a file URL has the form file:///PATH", raw)
		}
		if u.Scheme != "file" && (u.Hostname() == "" || strings.HasPrefix(u.Host, "-")) {
			return fault(fleet.BadRequest, nil, "%q has no host; give an https or ssh URL", Redact(raw))
		}
		_, password := u.User.Password()
		if password || u.User != nil && u.Scheme != "ssh" {
			return fault(fleet.BadRequest, nil, "the address of %s carries credentials; take them out and use a git credential helper on the runner", Redact(raw))
		}
		return s.checkProtocol(u.Scheme, raw)
	}
	if !scpForm().MatchString(raw) {
		return fault(fleet.BadRequest, nil, "%q is neither a URL nor an absolute path; give an https or ssh URL", raw)
	}
	return s.checkProtocol("ssh", raw)
}

func (s *Store) checkProtocol(protocol, raw string) error {
	switch {
	case s.allows(protocol):
		return nil
	case protocol == "file":
		return fault(fleet.OwnerPolicy, nil, "the owner of this runner does not allow repositories on its own disk (%s); use an https or ssh URL", raw)
	}
	return fault(fleet.BadRequest, nil, "%s uses %s, which is not accepted; use https or ssh", Redact(raw), protocol)
}

// Redact gives an address without user name and password; ssh keeps the user name.
func Redact(raw string) string {
	if !strings.Contains(raw, "://") {
		return raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return raw[strings.LastIndex(raw, "@")+1:]
	}
	if u.User == nil {
		return raw
	}
	if u.Scheme == "ssh" && u.User.Username() != "" {
		u.User = url.User(u.User.Username())
	} else {
		u.User = nil
	}
	return u.String()
}

// canonical makes spellings of one address share a cache.
func canonical(raw string) string {
	if len(raw) > 1 {
		raw = strings.TrimRight(raw, "/")
	}
	if scheme, rest, ok := strings.Cut(raw, "://"); ok {
		host, path, _ := strings.Cut(rest, "/")
		if user, name, ok := strings.Cut(host, "@"); ok {
			host = user + "@" + strings.ToLower(name)
		} else {
			host = strings.ToLower(host)
		}
		return strings.ToLower(scheme) + "://" + host + "/" + path
	}
	return raw
}

// baseName is the directory name of a repository's worktree: what a clone would call it.
func baseName(raw string) string {
	raw = strings.TrimSuffix(strings.TrimRight(raw, "/"), "/.git")
	name := raw[strings.LastIndexAny(raw, "/:")+1:]
	name = strings.TrimSuffix(name, ".git")
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' || r == '/' || r == '\\' {
			return '-'
		}
		return r
	}, name)
	clean = strings.TrimLeft(clean, ".-")
	if len(clean) > 100 || clean == "" {
		return "repo"
	}
	return clean
}

// checkRef refuses what git would not take as a ref, and anything it could take as an option.
func (g git) checkRef(ctx context.Context, dir, what, ref string) error {
	if ref != "" && !strings.HasPrefix(ref, "-") {
		full := ref
		if !strings.HasPrefix(ref, "refs/") {
			full = "refs/heads/" + ref
		}
		ok, err := g.yes(ctx, dir, "check-ref-format", full)
		if err != nil {
			return err
		}
		if ok {
			return nil
		}
	}
	return fault(fleet.BadRequest, nil, "%s %q is not a valid git ref name; see git-check-ref-format", what, ref)
}

func isSHA(s string) bool { return shaForm().MatchString(s) }

// checkCommit refuses a commit that is not given in full.
func checkCommit(what, sha string) error {
	if !isSHA(sha) {
		return fault(fleet.BadRequest, nil, "%s %q is not a full commit id of 40 hexadecimal digits", what, sha)
	}
	return nil
}
