package main

import (
	"strings"
	"testing"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// Who looks at a runner, or asks for an update of it, hears which package manager updates it.
func TestAManagedRunnerSaysWhoUpdatesIt(t *testing.T) {
	by := "managed by deb; on the machine `sudo apt-get install ./x.deb` updates it"
	r := &api.Runner{Version: "1.0.0", Update: &fleet.RunnerUpdate{Policy: "off", Waits: by}}
	if got := updateText(r); got != by {
		t.Errorf("runner get says %q", got)
	}
	r.Wanted = &fleet.Wanted{Version: "1.1.0"}
	r.Update.Offered = "1.1.0"
	if got := updateText(r); !strings.HasSuffix(got, by) || !strings.Contains(got, "1.1.0") {
		t.Errorf("runner update says %q", got)
	}
	if got := updateText(&api.Runner{Version: "1.0.0", Update: &fleet.RunnerUpdate{Policy: "ask"}}); got != "" {
		t.Errorf("of a runner with nothing to tell it says %q", got)
	}
}
