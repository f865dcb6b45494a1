package fleet

import "strings"

// LogCut begins the note of an attempt whose log was sealed without its end, which
// nobody has any more.
const LogCut = "the log is cut"

// CutNote gives that note; empty where the log is not cut.
func CutNote(notes []string) string {
	for _, n := range notes {
		if strings.HasPrefix(n, LogCut) {
			return n
		}
	}
	return ""
}
