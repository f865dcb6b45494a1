package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"tugline.dev/tugline/hub"
)

// retention declares the flags that bound what a hub keeps.
func retention(f *pflag.FlagSet, cfg *hub.Config) {
	r := &cfg.Retention
	f.Var(age{&r.Jobs}, "keep-jobs", "keep the records of ended jobs for this `AGE` (default 90d)")
	f.IntVar(&r.MaxJobs, "keep-max-jobs", 0, "keep at most `N` records of ended jobs (default 200000)")
	f.Var(age{&r.Output}, "keep-output", "keep output and artifacts for this `AGE` (default 30d)")
	f.Var(amount{&r.OutputBytes}, "keep-output-bytes", "keep at most this `SIZE` of output and artifacts, oldest sealed first to go (default 50GiB)")
	f.Var(age{&r.Audit}, "keep-audit", "keep audit records for this `AGE` (default 365d)")
	f.Var(amount{&cfg.MinFree}, "min-free", "take nothing new below this `SIZE` free on the disk (default 64MiB)")
}

// age is a flag such as 90d or 36h.
type age struct{ d *time.Duration }

func (a age) String() string {
	if a.d == nil || *a.d == 0 {
		return ""
	}
	return a.d.String()
}

func (age) Type() string { return "age" }

func (a age) Set(s string) error {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		days, err := strconv.Atoi(n)
		if err == nil && days >= 1 && days <= 36500 {
			*a.d = time.Duration(days) * 24 * time.Hour
			return nil
		}
	} else if d, err := time.ParseDuration(s); err == nil && d >= time.Hour {
		*a.d = d
		return nil
	}
	return fmt.Errorf("%q is no age of at least an hour, such as 90d or 36h", s)
}

// amount is a flag such as 500MiB or 50GiB.
type amount struct{ n *int64 }

func (a amount) String() string {
	if a.n == nil || *a.n == 0 {
		return ""
	}
	return strconv.FormatInt(*a.n, 10)
}

func (amount) Type() string { return "size" }

func (a amount) Set(s string) error {
	text, unit := s, int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			text, unit = n, u
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > (1<<62)/unit {
		return fmt.Errorf("%q is no size, such as 500MiB or 50GiB", s)
	}
	*a.n = n * unit
	return nil
}
