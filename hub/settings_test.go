package hub

import (
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func TestUnreadableSettings(t *testing.T) {
	good := map[string]string{"floor_select": "5GiB", "floor_start": "30 GB", "retry_pause": "30s", "model_priority": "codex:gpt-5, claude", "alert_webhook": "https://hooks.example/x", "default_harness": "codex"}
	if got := unreadable(good); len(got) != 0 {
		t.Errorf("of good settings: %q", got)
	}
	if got := unreadable(nil); len(got) != 0 {
		t.Errorf("of none: %q", got)
	}
	for name, c := range map[string]struct{ value, says string }{
		"floor_select":   {"lots", "10.0 GiB is taken instead"},
		"floor_start":    {"2000000TiB", "20.0 GiB is taken instead"},
		"retry_pause":    {"5 days", "1m0s is taken instead"},
		"model_priority": {"codex, ,claude", "along nothing"},
		"alert_webhook":  {"ftp://secret/x", "posted nowhere"},
	} {
		got := unreadable(map[string]string{name: c.value})
		if len(got) != 1 || !strings.Contains(got[0], name) || !strings.Contains(got[0], c.says) || strings.Contains(got[0], "secret") {
			t.Errorf("%s = %s: %q; want it to say %q", name, c.value, got, c.says)
		}
	}
	if f := fleet.FloorsOf(map[string]string{"floor_select": "lots"}); f.Select != fleet.DefaultSelectFloor {
		t.Errorf("a floor that cannot be read is taken as %d", f.Select)
	}
}
