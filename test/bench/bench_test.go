//go:build bench

// Package bench measures Tugline on the machine it runs on and holds the figures
// against what that machine can do: every aim that can be is a ratio of two things
// measured in the same run. The table is printed beside the figures committed in
// README.md; a missed aim is shown and does not fail the run, an error does.
package bench

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"tugline.dev/tugline/test/mesh"
)

var (
	update = flag.Bool("update", false, "write the figures into README.md")
	only   = flag.String("only", "", "measure one part: log, task, jobs, memory, size, look; apply, tasks, pace, failover, crowd")
)

func TestMain(m *testing.M) {
	if url := os.Getenv(crowdEnv); url != "" {
		if err := beCrowd(url, os.Getenv(crowdEnv+"_CA")); err != nil {
			fmt.Fprintln(os.Stderr, "crowd:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	mesh.Main(m)
}

func TestBench(t *testing.T) {
	s := &sheet{t: t, marks: "figures"}
	m := measureMachine(t, s)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *sheet, machine)
	}{
		{"log", measureLog},
		{"task", measureTask},
		{"jobs", measureJobs},
		{"memory", measureMemory},
		{"size", measureSize},
		{"look", measureLook},
	} {
		if *only == "" || *only == part.name {
			t.Run(part.name, func(t *testing.T) { part.run(t, s, m) })
		}
	}
	s.finish()
}
