package sched

import (
	"cmp"
	"strings"
)

// older says whether a version, as a CLI tells it, is below the least one; one in which
// no number can be found is.
func older(have, least string) bool {
	a, preA := numbers(have)
	b, preB := numbers(least)
	if a == "" {
		return true
	}
	for a != "" || b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
			return c < 0
		}
	}
	return preA && !preB
}

// numbers finds the dotted number in a text, and says whether it is of a version before
// that one, as 1.2.0-beta is. A number without a dot counts where no other is.
func numbers(s string) (dotted string, before bool) {
	for i := 0; i < len(s); {
		if !digit(s[i]) || i > 0 && (digit(s[i-1]) || s[i-1] == '.') {
			i++
			continue
		}
		end := i
		for end < len(s) && (digit(s[end]) || s[end] == '.' && end+1 < len(s) && digit(s[end+1])) {
			end++
		}
		if found := s[i:end]; dotted == "" || strings.Contains(found, ".") {
			dotted = found
			before = end+1 < len(s) && s[end] == '-' && (s[end+1] >= 'a' && s[end+1] <= 'z' || s[end+1] >= 'A' && s[end+1] <= 'Z')
		}
		if strings.Contains(dotted, ".") {
			break
		}
		i = end + 1
	}
	return dotted, before
}

func digit(c byte) bool { return c >= '0' && c <= '9' }
