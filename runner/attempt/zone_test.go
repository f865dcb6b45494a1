package attempt

import (
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// TestZoneOfAJob: an agent words times without a zone in that of its own environment, which
// a job may set; else, and where nobody knows that one, it is the machine's.
func TestZoneOfAJob(t *testing.T) {
	for tz, want := range map[string]string{"America/New_York": "America/New_York", ":Asia/Kolkata": "Asia/Kolkata", "UTC": "UTC", "": "", "Nowhere/Else": "", "Local": ""} {
		a := &Attempt{asg: Assignment{Spec: fleet.Spec{Env: map[string]string{"TZ": tz}}}}
		got := ""
		if z := a.zone(); z != nil {
			got = z.String()
		}
		if got != want {
			t.Errorf("with TZ=%q times are read in %q, want %q", tz, got, want)
		}
	}
	if z := (&Attempt{}).zone(); z != nil && z != time.Local {
		t.Errorf("without one they are read in %s", z)
	}
}
