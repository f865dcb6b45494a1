package spool

import (
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func TestJobsCountsTheBytesOfEachJob(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, b := fleet.JobID("01arz3ndektsv4rrffq69g5fav"), fleet.JobID("01arz3ndektsv4rrffq69g5faw")
	for _, w := range []struct {
		job  fleet.JobID
		name Name
		text string
	}{{a, Output, "four"}, {a, Events, "six..."}, {b, Output, "x"}} {
		k := Key{Job: w.job, Fence: fleet.Fence{Epoch: 1, Index: 7}, Name: w.name}
		if _, err := s.Append(t.Context(), k, 0, []byte(w.text)); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Jobs(); len(got) != 2 || got[a] != 10 || got[b] != 1 {
		t.Errorf("jobs: %v; want 10 bytes of %s and 1 of %s", got, a, b)
	}
	if err := s.Delete(a); err != nil {
		t.Fatal(err)
	}
	if got := s.Jobs(); len(got) != 1 || got[b] != 1 {
		t.Errorf("after deleting %s: %v", a, got)
	}
}
