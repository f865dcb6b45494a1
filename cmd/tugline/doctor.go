package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The levels of a finding, the worst last.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "fail"
)

var levels = []string{levelOK, levelWarn, levelFail}

// finding is one line of a doctor.
type finding struct {
	Check  string `json:"check"`
	Level  string `json:"level"`
	Detail string `json:"detail"`
	Mend   string `json:"mend,omitempty"` // what to do about it
}

// findings are what a doctor says.
type findings struct {
	Worst    string    `json:"worst"`
	Findings []finding `json:"findings"`
}

func (f *findings) add(check, level, mend, format string, args ...any) {
	if level == levelOK {
		mend = ""
	}
	f.Findings = append(f.Findings, finding{check, level, line(fmt.Sprintf(format, args...)), mend})
	f.Worst = slices.MaxFunc([]string{cmp.Or(f.Worst, levelOK), level}, func(a, b string) int { return slices.Index(levels, a) - slices.Index(levels, b) })
}

// told prints the findings, and is an error where one of them is a failure.
func (a *app) told(f *findings) error {
	if a.json {
		if err := a.printJSON(f); err != nil {
			return err
		}
	} else {
		for _, l := range f.Findings {
			fmt.Fprintf(a.out, "%-4s  %-12s  %s\n", l.Level, l.Check, l.Detail)
			if l.Mend != "" {
				fmt.Fprintf(a.out, "%20s%s\n", "→ ", l.Mend)
			}
		}
	}
	if f.Worst == levelFail {
		n := 0
		for _, l := range f.Findings {
			if l.Level == levelFail {
				n++
			}
		}
		return fail(exitFailed, "%s failed", plural(n, "check", "checks"))
	}
	return nil
}

// Beyond these a clock is worth a word.
const (
	clockWarn = 5 * time.Second
	clockFail = 5 * time.Minute
)

// clock says how this machine's clock stands to the hub's.
func (f *findings) clock(ahead time.Duration) {
	level, mend := levelOK, "set the clock, and have the machine follow a time server (timedatectl set-ntp true)"
	switch d := ahead.Abs(); {
	case d > clockFail:
		level = levelFail
	case d > clockWarn:
		level = levelWarn
	}
	here := time.Now().UTC()
	f.add("clock", level, mend, "here it is %s, at the hub %s", here.Format(time.TimeOnly), here.Add(-ahead).Format(time.TimeOnly))
}

// environment gives a variable of a list of them, the last one counting.
func environment(env []string, names ...string) string {
	for _, name := range names {
		for _, kv := range slices.Backward(env) {
			if k, v, _ := strings.Cut(kv, "="); k == name && v != "" {
				return v
			}
		}
	}
	return ""
}
