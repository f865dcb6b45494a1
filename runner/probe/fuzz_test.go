package probe

import (
	"testing"
	"time"
)

// Whatever a file of the kernel's or a command says, what is made of it stays within
// what a sample may hold.
func FuzzWhatTheMachineSays(f *testing.F) {
	for _, text := range []string{
		"some avg10=27.08 avg60=18.23 avg300=29.48 total=17403942704\n",
		"IdleHint=yes\nIdleSinceHint=1700000000000000\n\nIdleHint=no\n",
		`"HIDIdleTime" = 61000000000`,
		"Now drawing from 'Battery Power'\n -InternalBattery-0 (id=1)\t185%; discharging\n",
	} {
		f.Add(text)
	}
	share := func(t *testing.T, of string, v float64, most float64) {
		if !(v >= 0 && v <= most) {
			t.Errorf("%s = %v", of, v)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		share(t, "pressure", parsePressure(text), 100)
		if d, err := parseHints(text, time.Now()); err == nil && d < 0 {
			t.Errorf("idle since %v", d)
		}
		if d, err := parseHID(text); err == nil && d < 0 {
			t.Errorf("idle since %v", d)
		}
		if p := parseBatteries(text); p != nil {
			share(t, "charge", float64(p.Percent), 100)
		}
	})
}
