package peer

import (
	"errors"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

func TestSamples(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	a := c.nodes["n-a"]
	c.nodes["n-b"].applied.Store(41)
	sample := func(id string) Sample {
		for _, s := range a.Samples() {
			if s.ID == id {
				return s
			}
		}
		t.Fatalf("no sample of %s", id)
		return Sample{}
	}
	until(t, "all were heard", func() bool { return !sample("n-b").Heard.IsZero() && !sample("n-c").Heard.IsZero() })
	until(t, "what a node says is current", func() bool { return sample("n-b").Facts.Applied == 41 })
	s := sample("n-b")
	if s.Err != nil || s.Facts.ID != "n-b" || s.Trip < 0 || s.Offset.Abs() > s.Trip/2+10*time.Millisecond {
		t.Errorf("sample %+v; want an offset within half of the trip", s)
	}
	if own := sample("n-a"); own.Offset != 0 || own.Facts.ID != "n-a" {
		t.Errorf("of itself %+v", own)
	}
	if off, ok := a.ClockOff(three); !ok || off.Abs() > time.Second {
		t.Errorf("its clock is off by %s, %v", off, ok)
	}
	c.cable.cut("n-b")
	until(t, "a node that is gone shows", func() bool { return sample("n-b").Err != nil })
	if s := sample("n-b"); s.Facts.Applied != 41 || s.Heard.IsZero() {
		t.Errorf("what it said last is forgotten: %+v", s)
	}
	if _, err := a.Status(t.Context(), "n-b"); !errors.Is(err, fleet.Unavailable) {
		t.Errorf("asked directly: %v", err)
	}
	if f, err := c.nodes["n-b"].Status(t.Context(), "n-c"); err == nil {
		t.Errorf("a node that is cut off hears %+v", f)
	}
}

func TestClockOff(t *testing.T) {
	now := time.Now()
	s := func(id string, off time.Duration, ago time.Duration) Sample {
		return Sample{ID: id, Offset: off, Heard: now.Add(-ago)}
	}
	for name, c := range map[string]struct {
		voters  []string
		samples []Sample
		off     time.Duration
		ok      bool
	}{
		"alone":                     {[]string{"a"}, []Sample{s("a", 0, 0)}, 0, true},
		"two that differ":           {[]string{"a", "b"}, []Sample{s("a", 0, 0), s("b", time.Hour, 0)}, -30 * time.Minute, true},
		"this one is ahead":         {three, []Sample{s("n-a", 0, 0), s("n-b", -time.Hour, 0), s("n-c", -time.Hour, 0)}, time.Hour, true},
		"another one is ahead":      {three, []Sample{s("n-a", 0, 0), s("n-b", time.Hour, 0), s("n-c", time.Second, 0)}, -time.Second, true},
		"one is silent":             {three, []Sample{s("n-a", 0, 0), s("n-b", time.Minute, time.Minute), s("n-c", 10*time.Second, 0)}, -5 * time.Second, true},
		"two are silent":            {three, []Sample{s("n-a", 0, 0), s("n-b", 0, time.Minute), {ID: "n-c"}}, 0, false},
		"learners have no say":      {[]string{"n-a"}, []Sample{s("n-a", 0, 0), s("n-b", time.Hour, 0), s("n-c", time.Hour, 0)}, 0, true},
		"five, two of them astray":  {[]string{"a", "b", "c", "d", "e"}, []Sample{s("a", 0, 0), s("b", time.Hour, 0), s("c", -time.Hour, 0), s("d", time.Second, 0), s("e", 2*time.Second, 0)}, -time.Second, true},
		"none of four but two hear": {[]string{"a", "b", "c", "d"}, []Sample{s("a", 0, 0), s("b", 0, 0)}, 0, false},
	} {
		if off, ok := clockOff(c.voters, c.samples, now); off != c.off || ok != c.ok {
			t.Errorf("%s: %s %v, want %s %v", name, off, ok, c.off, c.ok)
		}
	}
}
