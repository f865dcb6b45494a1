package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

var aHubTicket = HubTicket{
	Cluster: "c-1", Secret: "spent-once", ExpiresAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	Nodes: []HubAddress{{Node: "n-1", Key: strings.Repeat("ab", 32), Endpoints: []string{"hub1:7441", "10.0.0.1:7441"}}},
}

func TestHubTicketThereAndBack(t *testing.T) {
	got, err := ParseHubTicket("  " + aHubTicket.String()[:20] + "\n " + aHubTicket.String()[20:] + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(aHubTicket, got); d != "" {
		t.Error(d)
	}
}

func TestHubTicketThatIsNone(t *testing.T) {
	whole := aHubTicket.String()
	lacks := func(f func(*HubTicket)) string {
		c := aHubTicket
		c.Nodes = append([]HubAddress{}, c.Nodes...)
		f(&c)
		return c.String()
	}
	for name, c := range map[string]struct{ text, want string }{
		"of a runner": {Ticket{Hubs: []string{"https://h"}, Secret: "s", Trust: TrustSystem}.String(), "--role hub"},
		"cut":         {whole[:len(whole)-9], "cut short"},
		"nothing":     {"", "starts with"},
		"no cluster":  {lacks(func(t *HubTicket) { t.Cluster = "" }), "no cluster"},
		"no hub":      {lacks(func(t *HubTicket) { t.Nodes = nil }), "no hub"},
		"no secret":   {lacks(func(t *HubTicket) { t.Secret = "" }), "no secret"},
		"bad key":     {lacks(func(t *HubTicket) { t.Nodes[0].Key = "zz" }), "id, key or address"},
	} {
		if _, err := ParseHubTicket(c.text); !errors.Is(err, fleet.TicketInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseTicket(whole); !errors.Is(err, fleet.TicketInvalid) || !strings.Contains(err.Error(), "for a hub node") {
		t.Errorf("as a runner's: %v", err)
	}
}

func TestGuestKeyIsOfItsSecretAlone(t *testing.T) {
	a, err := GuestKey("one")
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := GuestKey("one"); again != a {
		t.Error("the same secret gave another key")
	}
	if b, _ := GuestKey("two"); b == a {
		t.Error("two secrets gave one key")
	}
	if a[0]&7 != 0 || a[31]&192 != 64 {
		t.Error("the key is not clamped")
	}
}
