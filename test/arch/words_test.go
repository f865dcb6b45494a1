package arch

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// forbidden is what no file says: notes of work left undone, and where it was
// written or fetched from. The patterns are put together so that this file does
// not match itself.
var forbidden = []struct {
	what string
	re   *regexp.Regexp
}{
	{"a note of unfinished work", regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX|HA` + `CK)\b`)},
	{"a path of the machine it was written on", regexp.MustCompile(`(^|[\s"'=(:` + "`" + `])/(wo` + `rk|ro` + `ot)/`)},
	{"a package registry's host", regexp.MustCompile(`(?i)(registry\.npm` + `js\.org|proxy\.go` + `lang\.org|sum\.go` + `lang\.org|pypi\.` + `org|files\.python` + `hosted\.org|\bart` + `ifactory\b)`)},
}

// words says which forbidden things a text contains, with their lines.
func words(path, text string) (bad []string) {
	for n, line := range strings.Split(text, "\n") {
		for _, f := range forbidden {
			if m := f.re.FindString(line); m != "" {
				bad = append(bad, fmt.Sprintf("%s:%d: %q is %s", path, n+1, strings.TrimSpace(m), f.what))
			}
		}
	}
	return bad
}

// TestWords reads every file. Recorded streams of other programs are left out of
// the rule about notes, which are theirs.
func TestWords(t *testing.T) {
	read := 0
	files(t, func(path, text string) {
		read++
		if strings.ContainsRune(text, 0) {
			return // not text
		}
		for _, p := range words(path, text) {
			if strings.HasSuffix(path, ".jsonl") && strings.HasSuffix(p, forbidden[0].what) {
				continue
			}
			t.Error(p)
		}
	})
	if read < 150 {
		t.Errorf("only %d files were read", read)
	}
}

// TestWordsRule sees that the rule finds what it should.
func TestWordsRule(t *testing.T) {
	for text, want := range map[string]int{
		"// TO" + "DO: later":                          1,
		"mktemp XXXX" + "XX":                           0,
		"todo lists are an event":                      0,
		"\"/wo" + "rk/main\"":                          1,
		"cd /ro" + "ot/x":                              1,
		"https://example.com/wo" + "rk/x":              0,
		"a frame/wo" + "rk/":                           0,
		"https://registry.npm" + "js.org/x":            1,
		"module proxies such as proxy.go" + "lang.org": 1,
		"/home/dev/lab":                                0,
		"line\n\nFIX" + "ME and HA" + "CK":             1,
	} {
		if got := words("x", text); len(got) != want {
			t.Errorf("%q: %q, want %d problems", text, got, want)
		}
	}
}
