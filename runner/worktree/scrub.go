package worktree

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// scrub takes settings that carry credentials out of a cache's configuration, and out of that of worktrees on it, before
// the cache is used: an agent, or a tool that it ran, has put them there, and every later job of the repository would
// have them. A file elsewhere that has some is not included any more, and is left as it is. The names of settings are told,
// never their values.
func (s *Store) scrub(ctx context.Context, c *cache) error {
	files, err := filepath.Glob(filepath.Join(c.path, "worktrees", "*", "config.worktree"))
	if err != nil {
		return err
	}
	files = append(files, filepath.Join(c.path, "config"))
	var names []string
	for at := 0; at < len(files); at++ {
		file := files[at]
		settings, err := c.configured(ctx, file)
		if err != nil {
			return err
		}
		var out []setting
		for _, kv := range settings {
			if carriesCredentials(kv.key, kv.value) {
				names = append(names, redactKey(kv.key))
				out = append(out, kv)
			}
			for _, more := range c.included(ctx, file, kv) {
				if inside(c.path, more) {
					if !slices.Contains(files, more) {
						files = append(files, more)
					}
					continue
				}
				carried, err := c.carried(ctx, more, map[string]bool{})
				if err != nil {
					return err
				}
				if len(carried) > 0 {
					names = append(names, redactKey(kv.key)+" of "+strings.Join(carried, ", "))
					out = append(out, kv)
				}
			}
		}
		for _, kv := range out {
			err := s.patiently(ctx, c.hold, c.path, func() error {
				_, err := c.git.line(ctx, c.path, "config", "--file", file, "--fixed-value", "--unset-all", kv.key, kv.value)
				var failed *gitError
				if errors.As(err, &failed) && failed.exit == 5 { // the same setting was there twice
					return nil
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		names = slices.Compact(names)
		repository := Redact(c.url)
		s.log.Warn("settings that carried credentials were taken out of a repository's cache", "repository", repository, "path", c.path, "settings", names)
		s.scrubbed(repository, names)
	}
	return nil
}

type setting struct{ key, value string }

// configured lists what one file sets. One that can't be read has nothing: what uses the cache tells.
func (c *cache) configured(ctx context.Context, file string) (all []setting, err error) {
	settings, err := c.git.list(ctx, c.path, "config", "--file", file, "--no-includes", "-z", "--list")
	var failed *gitError
	if errors.As(err, &failed) && failed.exit > 0 {
		return nil, nil
	}
	for _, kv := range settings {
		key, value, _ := strings.Cut(kv, "\n")
		all = append(all, setting{key, value})
	}
	return all, err
}

// included gives the file that a setting includes, whether the condition for it holds now or not.
func (c *cache) included(ctx context.Context, file string, kv setting) []string {
	if kv.key != "include.path" && !(strings.HasPrefix(kv.key, "includeif.") && strings.HasSuffix(kv.key, ".path")) {
		return nil
	}
	// Only git knows every home.
	path, err := c.git.line(ctx, c.path, "-c", "tugline.at="+kv.value, "config", "--type=path", "--get", "tugline.at")
	if err != nil || path == "" {
		return nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(file), path)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return []string{path}
}

// carried names the settings of a file, and of those that it includes, that carry credentials. Files in seen are done.
func (c *cache) carried(ctx context.Context, file string, seen map[string]bool) (names []string, err error) {
	if st, err := os.Stat(file); err != nil || !st.Mode().IsRegular() || seen[file] {
		return nil, nil
	}
	seen[file] = true
	settings, err := c.configured(ctx, file)
	for _, kv := range settings {
		if carriesCredentials(kv.key, kv.value) {
			names = append(names, redactKey(kv.key))
		}
		for _, more := range c.included(ctx, file, kv) {
			deeper, failed := c.carried(ctx, more, seen)
			names, err = append(names, deeper...), errors.Join(err, failed)
		}
	}
	return names, err
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
