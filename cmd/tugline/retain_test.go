package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"tugline.dev/tugline/hub"
)

func TestWhatAHubKeeps(t *testing.T) {
	var cfg hub.Config
	f := pflag.NewFlagSet("hub run", pflag.ContinueOnError)
	retention(f, &cfg)
	if err := f.Parse([]string{"--keep-jobs", "7d", "--keep-output", "36h", "--keep-max-jobs", "10", "--keep-output-bytes", "2GiB", "--keep-audit", "400d", "--min-free", "512MiB"}); err != nil {
		t.Fatal(err)
	}
	want := hub.Retention{Jobs: 7 * 24 * time.Hour, MaxJobs: 10, Output: 36 * time.Hour, OutputBytes: 2 << 30, Audit: 400 * 24 * time.Hour}
	if cfg.Retention != want || cfg.MinFree != 512<<20 {
		t.Errorf("got %+v and %d, want %+v and %d", cfg.Retention, cfg.MinFree, want, 512<<20)
	}
	for _, args := range [][]string{{"--keep-jobs", "0d"}, {"--keep-jobs", "5m"}, {"--keep-jobs", "soon"}, {"--keep-output-bytes", "-1"}, {"--min-free", "9999999999999GiB"}, {"--min-free", "1GB"}} {
		f := pflag.NewFlagSet("hub run", pflag.ContinueOnError)
		retention(f, new(hub.Config))
		if err := f.Parse(args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
