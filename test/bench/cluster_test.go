//go:build bench

package bench

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestCluster measures what needs three nodes, or a hub that very many are connected to.
func TestCluster(t *testing.T) {
	s := &sheet{t: t, marks: "cluster figures"}
	for _, part := range []struct {
		name string
		run  func(*testing.T, *sheet)
	}{
		{"apply", measureApply},
		{"tasks", measureTasks},
		{"pace", measurePace},
		{"failover", measureFailover},
		{"crowd", measureCrowd},
	} {
		if *only == "" || *only == part.name {
			s.load("before " + part.name)
			t.Run(part.name, func(t *testing.T) { part.run(t, s) })
			s.load("after " + part.name)
		}
	}
	s.finish()
}

// load notes how many processes want a processor: what is measured shares it with them.
func (s *sheet) load(when string) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return // only Linux tells
	}
	one, _, _ := strings.Cut(string(b), " ")
	v, err := strconv.ParseFloat(one, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	s.note("load of the machine over a minute, "+when, "", v)
}
