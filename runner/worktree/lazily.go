package worktree

import (
	"regexp"
	"sync"
)

// lazily compiles a pattern when it is first used: this package is part of every
// start of the binary, also of those that never look at a text.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
