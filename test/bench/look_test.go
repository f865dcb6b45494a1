//go:build bench

package bench

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

var cpuPerOp = regexp.MustCompile(`(?m)^Benchmark(\S+)\s+\d+\s.*\s([\d.]+) cpu-ms/op`)

// measureLook holds the processor time of one look at the queue, at its bound and with ten
// thousand runners, against what a look may take, as the benchmarks of hub/sched measure
// it.
func measureLook(t *testing.T, s *sheet, _ machine) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	program := filepath.Join(t.TempDir(), "sched.test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, "tugline.dev/tugline/hub/sched").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(ctx, program, "-test.run", "^$", "-test.bench", "^Benchmark(Free|NoneFree|Unservable|Origins|Circuits|Keys|Repos)$/^(round|cold)$", "-test.benchtime", "20x", "-test.cpu", "1").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := map[string]float64{}
	for _, m := range cpuPerOp.FindAllStringSubmatch(string(out), -1) {
		got[m[1]], _ = strconv.ParseFloat(m[2], 64)
	}
	for _, shape := range []struct{ name, what string }{
		{"Free/round", "every slot is free"},
		{"NoneFree/round", "every slot is taken"},
		{"Unservable/round", "no job can be taken"},
		{"Origins/round", "50 origins at 3 priorities"},
		{"Circuits/round", "half of the circuits are open"},
		{"Keys/round", "all wait for concurrency keys"},
		{"Repos/round", "1,000 repositories, some warm"},
	} {
		v, ok := got[shape.name]
		if !ok {
			t.Fatalf("no figure for %s in\n%s", shape.name, out)
		}
		s.most("a look, 10,000 runners × 100,000 jobs: "+shape.what, "ms", 50, "≤ 50 ms", v)
	}
	s.note("   a leader's first look, every slot free", "ms", got["Free/cold"])
}
