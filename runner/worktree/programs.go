package worktree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// programs names the filters of a repository's own configuration through which git would have programs change the files
// that it looks at or checks out. An agent may have written them: they are not run, and what they leave of a file proves
// nothing. Git LFS writes its own there too.
func (g git) programs(ctx context.Context, dir string) ([]string, error) {
	settings, err := g.list(ctx, dir, "config", "--show-scope", "--includes", "-z", "--get-regexp", `^filter\..*\.(clean|smudge|process)$`)
	var failed *gitError
	if errors.As(err, &failed) && failed.exit == 1 {
		return nil, nil // there is none
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for i := 0; i+1 < len(settings); i += 2 {
		key, value, _ := strings.Cut(settings[i+1], "\n")
		name := strings.TrimPrefix(key[:strings.LastIndex(key, ".")], "filter.")
		if own := settings[i] == "local" || settings[i] == "worktree"; !own || value == "" || name == "lfs" && lfsForm().MatchString(value) || slices.Contains(names, name) {
			continue
		}
		names = append(names, name)
	}
	return names, nil
}

var lfsForm = lazily(`^git-lfs (clean|smudge|filter-process)( --skip)?( -- %f)?$`)

func notRun(filters []string) string {
	if len(filters) == 0 {
		return ""
	}
	return fmt.Sprintf("its git configuration has programs of its own, as filter.%s, which are not run", strings.Join(filters, ", filter."))
}

// without gives a git that runs no program of some filters: it takes files as they are.
func (g git) without(filters []string) git {
	var env []string
	for _, name := range filters {
		for _, kv := range [][2]string{{"clean", ""}, {"smudge", ""}, {"process", ""}, {"required", "false"}} {
			n := len(env) / 2
			env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=filter.%s.%s", n, name, kv[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", n, kv[1]))
		}
	}
	return g.with(append(env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(env)/2))...)
}
