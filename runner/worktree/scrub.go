package worktree

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// scrub takes settings that carry credentials out of a cache's configuration, and out of that of worktrees on it, before
// the cache is used: an agent, or a tool that it ran, has put them there, and every later job of the repository would
// have them. Their names are told, never their values.
func (s *Store) scrub(ctx context.Context, c *cache) error {
	files, err := filepath.Glob(filepath.Join(c.path, "worktrees", "*", "config.worktree"))
	if err != nil {
		return err
	}
	var names []string
	for _, file := range append(files, filepath.Join(c.path, "config")) {
		settings, err := c.git.list(ctx, c.path, "config", "--file", file, "--no-includes", "-z", "--list")
		var failed *gitError
		if errors.As(err, &failed) && failed.exit > 0 {
			continue // it can't be read, which what uses the cache tells
		}
		if err != nil {
			return err
		}
		var out []string
		for _, kv := range settings {
			key, value, _ := strings.Cut(kv, "\n")
			if carriesCredentials(key, value) && !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
		for _, key := range out {
			err := s.patiently(ctx, c.hold, c.path, func() error {
				_, err := c.git.line(ctx, c.path, "config", "--file", file, "--unset-all", key)
				return err
			})
			if err != nil {
				return err
			}
			names = append(names, redactKey(key))
		}
	}
	if len(names) > 0 {
		repository := Redact(c.url)
		s.log.Warn("settings that carried credentials were taken out of a repository's cache", "repository", repository, "path", c.path, "settings", names)
		s.scrubbed(repository, names)
	}
	return nil
}

// carriesCredentials says whether a setting of git holds, or may hold, a password or a token.
func carriesCredentials(key, value string) bool {
	section, rest, _ := strings.Cut(key, ".")
	name := rest[strings.LastIndex(rest, ".")+1:]
	section, name = strings.ToLower(section), strings.ToLower(name)
	switch {
	case section == "http" && (name == "extraheader" || name == "cookiefile"):
		return value != ""
	case section == "credential" && name == "helper":
		low := strings.ToLower(value)
		return strings.Contains(low, "password") || strings.Contains(low, "token")
	case slices.Contains([]string{"password", "passwd", "token", "secret", "apikey", "accesstoken", "oauthtoken"}, name):
		return value != ""
	}
	return hasUserinfo(value) || hasUserinfo(strings.TrimSuffix(rest, "."+rest[strings.LastIndex(rest, ".")+1:]))
}

// hasUserinfo says whether a text is a URL with credentials in it. The user of an ssh address is none.
func hasUserinfo(text string) bool {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return false
	}
	host, _, _ := strings.Cut(rest, "/")
	at := strings.LastIndex(host, "@")
	if at < 0 {
		return false
	}
	user, password, _ := strings.Cut(host[:at], ":")
	switch strings.ToLower(scheme) {
	case "ssh", "git+ssh", "ssh+git":
		return password != ""
	}
	return user != "" || password != ""
}

// redactKey gives the name of a setting without what its middle part, which may be a URL, holds of credentials.
func redactKey(key string) string {
	first, last := strings.Index(key, "."), strings.LastIndex(key, ".")
	if first < 0 || first == last || !hasUserinfo(key[first+1:last]) {
		return key
	}
	middle := key[first+1 : last]
	if _, err := url.Parse(middle); err != nil {
		return key[:first] + ".…" + key[last:]
	}
	return key[:first+1] + Redact(middle) + key[last:]
}
