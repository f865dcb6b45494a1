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
	c.nodes["n-c"].ahead.Store(int64(time.Hour))
	until(t, "a clock that is ahead shows", func() bool { return (sample("n-c").Offset - time.Hour).Abs() < time.Minute })
	a.ahead.Store(int64(2 * time.Hour))
	until(t, "so does one that is behind its own", func() bool { return (sample("n-c").Offset + time.Hour).Abs() < time.Minute })
	if own := sample("n-a"); own.Offset != 0 || own.Facts.ID != "n-a" {
		t.Errorf("of itself %+v", own)
	}
	c.cable.cut("n-b")
	until(t, "a node that is gone shows", func() bool { return sample("n-b").Err != nil })
	if s := sample("n-b"); s.Facts.Applied != 41 || s.Heard.IsZero() {
		t.Errorf("what it said last is forgotten: %+v", s)
	}
	if err := sample("n-b").Err; !errors.Is(err, fleet.Unavailable) {
		t.Errorf("a node that is gone: %v", err)
	}
}
