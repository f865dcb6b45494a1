package harness

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	monthDay = `(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* (\d{1,2})(?:st|nd|rd|th)?,?(?: (\d{4}))?,?(?: at)? `
	halfDay  = `(\d{1,2})(?::(\d{2}))? ?([ap])\.?m\b\.?`
	fullDay  = `(\d{1,2}):(\d{2})(?::\d{2})?()\b`
	ofZone   = `(?: (?:\(([A-Za-z_+/0-9-]+)\)|(UTC|GMT)\b))?`
	ofReset  = `\b(?:(?:resets?|renews?|try again)(?: at| on)?|(?:retry|available)(?: again)? (?:at|on)) `
	ofWait   = `\b(?:(?:try again|retry|resets?|available)(?: again)? (?:in|after)|retry[-_]after)(?:"?[:=] ?"?| )`
)

var (
	// Mar 17th, 2030 5:46 PM · Mar 17, 2030, 5:46pm (UTC) · Mar 17, 5pm · Mar 17 at 5:46 PM
	resetDate = lazily(`(?i)\b` + monthDay + halfDay + ofZone)
	// resets Mar 17, 17:46: without a word of an end before it, it may be the time of a line of a log
	resetDate24 = lazily(`(?i)` + ofReset + monthDay + fullDay + ofZone)
	// resets 5pm (Europe/Berlin) · try again at 5:46 PM · resets at 5:46pm
	resetClock = lazily(`(?i)` + ofReset + halfDay + ofZone)
	// try again at 23:30
	resetClock24 = lazily(`(?i)` + ofReset + fullDay + ofZone)
	// limit reached|1900000000
	resetEpoch = lazily(`(?i)limit reached ?\| ?(\d{10,13})\b`)
	resetISO   = lazily(`\b(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d))`)
	// try again in 6m0s · in 1.5s · in 3 days 4 hours 5 minutes · after 30 seconds
	resetWait = lazily(`(?i)` + ofWait + `((?:\d+(?:\.\d+)? ?[a-z]+[ ,]*(?:and )?){1,5})`)
	// Retry after 30 · retry-after: 30
	resetSeconds = lazily(`(?i)(` + ofWait + `(\d+(?:\.\d+)?))(?:[.:]?\s|[.:]?$|[,;!)"'}])`)
	// What speaks of an end that none of these can read. A bare "retry" does not: CLIs say "exceeded retry limit".
	resetWords = lazily(`(?i)\b(?:resets?|try again|retry (?:in|after|at|on|when|once|from)|renews?|available again)\b[^.;\n]{0,160}`)
	waitPart   = lazily(`(?i)(\d+(?:\.\d+)?) ?([a-z]+)`)
)

// parseLimits finds in the words of a refusal when it ends. at is when they were said, zone that of a time that
// names none: CLIs word such times in the zone of their machine.
func parseLimits(text string, at time.Time, zone *time.Location) limits {
	if m := resetEpoch().FindStringSubmatch(text); m != nil {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		return limits{resetAt: epoch(n), words: m[0]}
	}
	if m := resetISO().FindStringSubmatch(text); m != nil {
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05Z0700"} {
			if t, err := time.Parse(layout, m[1]); err == nil {
				t = t.UTC()
				return limits{resetAt: &t, words: m[0]}
			}
		}
	}
	if m := firstOf(text, resetDate(), resetDate24()); m != nil {
		if t := fromDate(m, at, zone); t != nil {
			return limits{resetAt: t, words: m[0]}
		}
	}
	if m := firstOf(text, resetClock(), resetClock24()); m != nil && !at.IsZero() {
		in := at.In(named(m[4]+m[5], zone))
		if hour, minute, ok := clock(m[1], m[2], m[3]); ok {
			t := time.Date(in.Year(), in.Month(), in.Day(), hour, minute, 0, 0, in.Location())
			if !t.After(at) {
				t = time.Date(in.Year(), in.Month(), in.Day()+1, hour, minute, 0, 0, in.Location())
			}
			t = t.UTC()
			return limits{resetAt: &t, words: m[0]}
		}
	}
	if m := resetWait().FindStringSubmatch(text); m != nil {
		if wait := waitOf(m[1]); wait > 0 {
			return limits{retryAfter: wait, words: strings.TrimSpace(m[0])}
		}
	}
	if m := resetSeconds().FindStringSubmatch(text); m != nil {
		return limits{retryAfter: waitOf(m[2] + "s"), words: m[1]}
	}
	return limits{words: strings.TrimSpace(resetWords().FindString(text))}
}

func fromDate(m []string, at time.Time, zone *time.Location) *time.Time {
	month, err := time.Parse("Jan", strings.ToUpper(m[1][:1])+strings.ToLower(m[1][1:3]))
	day, _ := strconv.Atoi(m[2])
	hour, minute, ok := clock(m[4], m[5], m[6])
	if err != nil || !ok || day < 1 || day > 31 {
		return nil
	}
	year, _ := strconv.Atoi(m[3])
	loc := named(m[7]+m[8], zone)
	if year == 0 {
		if at.IsZero() {
			return nil
		}
		year = at.In(loc).Year()
		// A date without a year is the next of its kind, but for one that has only just passed.
		if time.Date(year, month.Month(), day, hour, minute, 0, 0, loc).Before(at.Add(-24 * time.Hour)) {
			year++
		}
	}
	t := time.Date(year, month.Month(), day, hour, minute, 0, 0, loc).UTC()
	return &t
}

// firstOf gives the groups of the first of the expressions that text has.
func firstOf(text string, res ...*regexp.Regexp) []string {
	for _, re := range res {
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
	}
	return nil
}

// clock reads a time of day: half is that of am or pm, or empty where the day has 24 hours.
func clock(h, m, half string) (hour, minute int, ok bool) {
	hour, _ = strconv.Atoi(h)
	minute, _ = strconv.Atoi(m)
	if half == "" {
		return hour, minute, hour < 24 && minute < 60
	}
	if hour < 1 || hour > 12 || minute > 59 {
		return 0, 0, false
	}
	hour %= 12
	if strings.EqualFold(half, "p") {
		hour += 12
	}
	return hour, minute, true
}

func named(name string, zone *time.Location) *time.Location {
	if name == "" {
		return zone
	}
	if strings.EqualFold(name, "UTC") || strings.EqualFold(name, "GMT") {
		return time.UTC
	}
	if loc, err := time.LoadLocation(name); err == nil && name != "Local" {
		return loc
	}
	return zone
}

var waitUnits = map[string]time.Duration{
	"ms": time.Millisecond, "millisecond": time.Millisecond, "milliseconds": time.Millisecond,
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
}

func waitOf(text string) time.Duration {
	var sum time.Duration
	for _, m := range waitPart().FindAllStringSubmatch(text, 8) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			continue
		}
		sum += capped(n * float64(waitUnits[strings.ToLower(m[2])]))
		sum = min(sum, maxWait)
	}
	return sum
}

const maxWait = 366 * 24 * time.Hour // beyond it a stated wait is not believed to be longer

// capped makes a duration of a number of nanoseconds that may be anything.
func capped(ns float64) time.Duration {
	switch {
	case !(ns > 0):
		return 0
	case ns >= float64(maxWait):
		return maxWait
	}
	return time.Duration(ns)
}

// epoch reads a point in time in seconds or milliseconds since 1970; nil if it can't be one.
func epoch(n int64) *time.Time {
	if n > 1e11 {
		n /= 1000
	}
	if n <= 0 || n > 253402300799 {
		return nil
	}
	t := time.Unix(n, 0).UTC()
	return &t
}

// millis reads a point in time in milliseconds since 1970; nil if it can't be one.
func millis(n int64) *time.Time {
	if n <= 0 || n > 253402300799999 {
		return nil
	}
	t := time.UnixMilli(n).UTC().Truncate(time.Second)
	return &t
}

// headerLimits reads the response headers of a refusal, with lower-case names.
func headerLimits(h map[string]string, at time.Time) limits {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(h["retry-after-ms"]), 64); err == nil {
		return limits{retryAfter: capped(ms * float64(time.Millisecond)), words: "retry-after-ms: " + strings.TrimSpace(h["retry-after-ms"])}
	}
	v := strings.TrimSpace(h["retry-after"])
	if v == "" {
		return limits{}
	}
	words := "retry-after: " + v
	if sec, err := strconv.ParseFloat(v, 64); err == nil {
		return limits{retryAfter: capped(sec * float64(time.Second)), words: words}
	}
	if t, err := time.Parse(time.RFC1123, v); err == nil {
		t = t.UTC()
		return limits{resetAt: &t, words: words}
	}
	return limits{words: words}
}
