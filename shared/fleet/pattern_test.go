package fleet

import "testing"

func TestPatternsOfRepositories(t *testing.T) {
	for _, c := range []struct {
		pattern, url string
		want         bool
	}{
		{"https://h/a/*", "https://h/a/b", true},
		{"https://h/a/*", "https://h/a/b.git", true},
		{"https://h/a/*", "https://h/a/b/c", false},
		{"https://h/a/**", "https://h/a/b/c", true},
		{"https://h/a/**", "https://h/a", false},
		{"https://h/a/**", "https://h/ab/c", false},
		{"https://h/a/**", "https://h/a/../b", false},
		{"https://*/team/**", "https://h/team/x", true},
		{"https://h/**", "https://evil/h/x", false},
		{"https://h/a.git", "https://h/a", true},
		{"ssh://git@h/**", "ssh://git@h/a/b", true},
		{"[", "https://h/a", false},
	} {
		if got := MatchURL(c.pattern, c.url); got != c.want {
			t.Errorf("MatchURL(%q, %q) = %v", c.pattern, c.url, got)
		}
	}
}
