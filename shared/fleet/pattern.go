package fleet

import (
	"path"
	"slices"
	"strings"
)

// MatchURL says whether a URL matches an owner's pattern: * stands for anything but
// a slash, and a pattern that ends in /** takes in everything below. A trailing
// .git makes no difference.
func MatchURL(pattern, url string) bool {
	url = strings.TrimSuffix(strings.TrimSuffix(url, "/"), ".git")
	pattern = strings.TrimSuffix(pattern, ".git")
	base, deep := strings.CutSuffix(pattern, "/**")
	if !deep {
		ok, err := path.Match(pattern, url)
		return ok && err == nil
	}
	parts := strings.Split(url, "/")
	for n := 1; n < len(parts); n++ {
		if slices.Contains(parts[n:], "..") {
			return false
		}
		if ok, err := path.Match(base, strings.Join(parts[:n], "/")); ok && err == nil {
			return true
		}
	}
	return false
}
