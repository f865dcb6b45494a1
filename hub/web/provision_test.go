package web

import (
	"net/http"
	"strings"
	"testing"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// One key is one installation, also after its end, and values of credentials go to the
// runner's box alone: not even a digest of them is in the state.
func TestRepeatedAskingInstallsOnce(t *testing.T) {
	var given []string
	w := newWorld(t, func(c *Config) {
		c.GiveCredentials = func(_ *fleet.Runner, id string, values map[string]string) error {
			given = append(given, id+" "+values["CODEX_API_KEY"])
			return nil
		}
		c.ProvisionStanding = func(*fleet.Provision) (string, bool) { return "", false }
		c.Nudge = func(fleet.RunnerID) {}
	})
	id := w.enrolled("box")
	ask := func(value, version string) request {
		return request{method: http.MethodPost, path: "/v1/runners/box/provisioning", role: fleet.RoleOperator, key: "k",
			body: api.AskProvision{What: "codex", Version: version, Credentials: map[string]string{"CODEX_API_KEY": value}}}
	}
	first := get[api.Provision](w, ask("one", ""))
	if again := get[api.Provision](w, ask("two", "")); again.ID != first.ID || again.State != fleet.ProvisionQueued {
		t.Errorf("repeated while it waits: %+v after %+v", again, first)
	}
	w.refuses(ask("one", "1.2.3"), 409, fleet.KeyReused)
	w.must(&state.DeliverProvision{Runner: id, ID: first.ID})
	if again := get[api.Provision](w, ask("three", "")); again.ID != first.ID || again.State != fleet.ProvisionDelivered {
		t.Errorf("repeated while it is made: %+v", again)
	}
	w.must(&state.EndProvision{Runner: id, ID: first.ID, Installed: "1.0.0"})
	if again := get[api.Provision](w, ask("four", "")); again.ID != first.ID || again.State != fleet.ProvisionSucceeded {
		t.Errorf("repeated after its end: %+v", again)
	}
	if all := w.View().ProvisionsOf(id); len(all) != 1 {
		t.Errorf("there are %d installations, want 1", len(all))
	}
	if got := strings.Join(given, ", "); got != first.ID+" one, "+first.ID+" two" {
		t.Errorf("given are %s", got)
	}
	other := ask("five", "")
	other.key = "another"
	if again := get[api.Provision](w, other); again.ID == first.ID {
		t.Error("another key begins nothing")
	}
}
