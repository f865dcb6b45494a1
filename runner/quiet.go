package runner

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// quiet is one weekly period. Minutes count from midnight; to below or at from
// means that it ends on the next day.
type quiet struct {
	days     [7]bool // on which it begins, Sunday first
	from, to int
}

var dayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// parseQuiet reads "22:00-07:00", "Mon-Fri 09:00-17:30" or "Sat".
func parseQuiet(s string) (quiet, error) {
	bad := fmt.Errorf("%q: want \"22:00-07:00\", \"Mon-Fri 09:00-17:30\" or a day such as \"Sat\"", s)
	q := quiet{to: 24 * 60}
	words := strings.Fields(strings.ToLower(s))
	if len(words) == 0 || len(words) > 2 {
		return q, bad
	}
	hours := words[len(words)-1]
	if !strings.Contains(hours, ":") {
		hours = ""
	}
	if len(words) == 2 && hours == "" {
		return q, bad
	}
	if len(words) == 2 || hours == "" {
		first, last, span := strings.Cut(words[0], "-")
		if !span {
			last = first
		}
		a, b := slices.Index(dayNames, first), slices.Index(dayNames, last)
		if a < 0 || b < 0 {
			return q, bad
		}
		for d := a; ; d = (d + 1) % 7 {
			q.days[d] = true
			if d == b {
				break
			}
		}
	} else {
		q.days = [7]bool{true, true, true, true, true, true, true}
	}
	if hours != "" {
		from, to, ok := strings.Cut(hours, "-")
		f, err1 := time.Parse("15:04", from)
		t, err2 := time.Parse("15:04", to)
		if to == "24:00" {
			t, err2 = time.Time{}, nil
		}
		if !ok || err1 != nil || err2 != nil {
			return q, bad
		}
		q.from, q.to = f.Hour()*60+f.Minute(), t.Hour()*60+t.Minute()
		if q.to == 0 {
			q.to = 24 * 60
		}
		if q.from == q.to {
			return q, bad
		}
	}
	return q, nil
}

// until gives the end of the period if now lies in it.
func (q quiet) until(now time.Time) (time.Time, bool) {
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	at := func(days, minutes int) time.Time {
		return time.Date(midnight.Year(), midnight.Month(), midnight.Day()+days, 0, minutes, 0, 0, now.Location())
	}
	for _, began := range []int{0, -1} { // today, or yesterday and over midnight
		day := (int(now.Weekday()) + 7 + began) % 7
		ends := began
		if q.to <= q.from {
			ends++
		}
		from, to := at(began, q.from), at(ends, q.to)
		if q.days[day] && !now.Before(from) && now.Before(to) {
			return to, true
		}
	}
	return time.Time{}, false
}

// quietUntil says whether one of the owner's quiet periods holds, and its end.
func (o Owner) quietUntil(now time.Time) (time.Time, bool) {
	var end time.Time
	for _, s := range o.Hours.Quiet {
		if q, err := parseQuiet(s); err == nil {
			if t, ok := q.until(now); ok && t.After(end) {
				end = t
			}
		}
	}
	return end, !end.IsZero()
}
