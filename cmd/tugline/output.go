package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxWidth is how wide a table gets, in characters.
const maxWidth = 120

// printJSON writes a value, indented.
func (a *app) printJSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.printRaw(b)
}

// printRaw writes a document of the hub, with all that it says.
func (a *app) printRaw(b []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(b), "", "  "); err != nil {
		return fail(exitFailed, "the hub's answer is not JSON; is something else at that address?")
	}
	out.WriteByte('\n')
	_, err := a.out.Write(out.Bytes())
	return err
}

// table lines up columns. The last one is cut where the line would get too wide.
type table struct {
	head []string
	rows [][]string
	full bool // for a program: nothing is cut
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) error {
	width := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, r := range all {
		for i, c := range r {
			r[i] = line(c)
			n := utf8.RuneCountInString(r[i])
			if !t.full {
				n = min(n, 48)
			}
			width[i] = max(width[i], n)
		}
	}
	var b strings.Builder
	for _, r := range all {
		used := 0
		var l strings.Builder
		for i, c := range r {
			room := width[i]
			if i == len(r)-1 && !t.full {
				room = max(maxWidth-used, 12)
			}
			c = cut(c, room)
			l.WriteString(c)
			if i < len(r)-1 {
				l.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)+2))
			}
			used += width[i] + 2
		}
		b.WriteString(strings.TrimRight(l.String(), " "))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cut shortens a text to n characters, with a mark.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return string(r[:max(n-1, 0)]) + "…"
}

// line makes one line of a text that others wrote.
func line(s string) string { return strings.Join(strings.Fields(clean(s)), " ") }

// clean takes out what would steer a terminal, and keeps line breaks and tabs.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unicode.IsControl(r) || r == '\u202e' || r == '\u2066' || r == '\u2067' || r == '\u2068' {
			return -1
		}
		return r
	}, s)
}

// ago tells an age roughly.
func ago(now time.Time, t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	d := now.Sub(*t)
	if d < 0 {
		return "now"
	}
	return roughly(d) + " ago"
}

func roughly(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// ahead tells how far away a time to come is: to the nearest of its smaller unit, for one
// that is waited for is not as near as its larger unit alone would have it.
func ahead(d time.Duration) string {
	if d = d.Round(time.Second); d < time.Minute {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	switch d = d.Round(time.Minute); {
	case d >= 240*time.Hour:
		d = d.Round(24 * time.Hour)
	case d >= 48*time.Hour:
		d = d.Round(time.Hour)
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(span(d), "00s"), "00m"), "00h")
}

// span tells a duration in at most two units.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", max(d, 0)/time.Millisecond)
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	if d < 48*time.Hour {
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// size tells a number of bytes.
func size(n int64) string {
	const units = "KMGT"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}

// count writes a number with a separator between thousands.
func count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(int64(n)) + " " + many
}

// paint is how a text is coloured.
type paint string

const (
	bold   paint = "1"
	dim    paint = "2"
	red    paint = "31"
	green  paint = "32"
	yellow paint = "33"
	cyan   paint = "36"
)

func (p paint) on(colour bool, s string) string {
	if !colour || s == "" {
		return s
	}
	return "\x1b[" + string(p) + "m" + s + "\x1b[0m"
}
