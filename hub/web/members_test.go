package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// nodes stands for the hub nodes, and says what it was asked.
type nodes struct{ asked []string }

func (n *nodes) note(format string, a ...any) error {
	n.asked = append(n.asked, fmt.Sprintf(format, a...))
	return nil
}

func (n *nodes) Members(context.Context) (api.Members, error) {
	return api.Members{Members: []api.Member{{ID: "n-1", Role: "voter", Health: "ok", Endpoints: []string{}}}, Leader: "n-1", Warnings: []string{}}, nil
}

func (n *nodes) Remove(_ context.Context, actor state.Head, id, why string, force bool) error {
	if id == "nothing" {
		return wrong(fleet.NotFound, "there is no node %s", id)
	}
	return n.note("remove %s %q %t by %s", id, why, force, actor.Actor)
}

func (n *nodes) Transfer(_ context.Context, to string) error { return n.note("transfer %s", to) }

func (n *nodes) Drain(_ context.Context, id string, on bool) error {
	return n.note("drain %s %t", id, on)
}

func (n *nodes) Backup(_ context.Context, w io.Writer, passphrase string, output bool) error {
	if passphrase == "short" {
		return wrong(fleet.BadRequest, "the passphrase is too short")
	}
	_, err := fmt.Fprintf(w, "archive %q %t", passphrase, output)
	if passphrase == "breaks" {
		return errors.New("the disk is gone")
	}
	return err
}

func (n *nodes) Restore(_ context.Context, r io.Reader, caller fleet.TokenID) (api.Restored, error) {
	b, err := io.ReadAll(r)
	if err != nil || !strings.HasPrefix(string(b), "archive") {
		return api.Restored{}, wrong(fleet.BadRequest, "this is no backup")
	}
	n.note("restore %d by %s", len(b), caller)
	return api.Restored{Epoch: 3}, nil
}

func TestMembers(t *testing.T) {
	n := &nodes{}
	w := newWorld(t, func(c *Config) { c.Cluster = n })
	var m api.Members
	if a := w.do(request{method: "GET", path: "/v1/members", role: fleet.RoleViewer}); a.status != 200 || json.Unmarshal(a.body, &m) != nil || m.Leader != "n-1" {
		t.Errorf("members: %d %s", a.status, a.body)
	}
	for _, c := range []struct {
		r    request
		want string
	}{
		{request{method: "DELETE", path: "/v1/members/n-2?force=true&why=old"}, `remove n-2 "old" true by t-admin`},
		{request{method: "POST", path: "/v1/members/transfer", body: api.Transfer{To: "n-3"}}, "transfer n-3"},
		{request{method: "POST", path: "/v1/members/transfer"}, "transfer "},
		{request{method: "POST", path: "/v1/members/leader/drain"}, "drain  true"},
		{request{method: "POST", path: "/v1/members/n-2/undrain"}, "drain n-2 false"},
	} {
		n.asked = nil
		c.r.role = fleet.RoleAdmin
		if a := w.do(c.r); a.status/100 != 2 || len(n.asked) != 1 || n.asked[0] != c.want {
			t.Errorf("%s %s: %d, asked %q; want %q", c.r.method, c.r.path, a.status, n.asked, c.want)
		}
	}
	w.refuses(request{method: "DELETE", path: "/v1/members/nothing", role: fleet.RoleAdmin}, 404, fleet.NotFound)
}

func TestArchives(t *testing.T) {
	n := &nodes{}
	w := newWorld(t, func(c *Config) { c.Archives = n })
	a := w.do(request{method: "POST", path: "/v1/backup", role: fleet.RoleAdmin, body: api.BackupRequest{Passphrase: "a long one", Output: true}})
	if a.status != 200 || string(a.body) != `archive "a long one" true` || a.header.Get("Content-Type") != "application/x-tar" {
		t.Errorf("backup: %d %s %v", a.status, a.body, a.header)
	}
	w.refuses(request{method: "POST", path: "/v1/backup", role: fleet.RoleAdmin, body: api.BackupRequest{Passphrase: "short"}}, 400, fleet.BadRequest)
	a = w.do(request{method: "PUT", path: "/v1/restore", role: fleet.RoleAdmin, body: []byte("archive of it all")})
	var done api.Restored
	if a.status != 200 || json.Unmarshal(a.body, &done) != nil || done.Epoch != 3 || len(n.asked) != 1 || n.asked[0] != "restore 17 by t-admin" {
		t.Errorf("restore: %d %s, asked %q", a.status, a.body, n.asked)
	}
	w.refuses(request{method: "PUT", path: "/v1/restore", role: fleet.RoleAdmin, body: []byte("something else")}, 400, fleet.BadRequest)
}

func TestHubTickets(t *testing.T) {
	w := newWorld(t)
	var k api.Ticket
	a := w.do(request{method: "POST", path: "/v1/tickets", role: fleet.RoleAdmin, body: api.TicketRequest{Role: fleet.TicketHub}})
	if a.status != 201 || json.Unmarshal(a.body, &k) != nil || !strings.HasPrefix(k.Ticket, "tughub1_") {
		t.Fatalf("a hub ticket: %d %s", a.status, a.body)
	}
	if got, ok := w.View().Ticket(HashSecret(strings.TrimPrefix(k.Ticket, "tughub1_"))); !ok || got.Role != fleet.TicketHub || len(got.Guest) != 32 {
		t.Errorf("on record: %+v", got)
	}
	for _, bad := range []api.TicketRequest{
		{Replace: "n-1"}, {Role: fleet.TicketHub, For: "r-1"}, {Role: fleet.TicketHub, Labels: map[string]string{"a": "b"}}, {Role: fleet.TicketHub, Replace: "n-1", Uses: 2},
	} {
		w.refuses(request{method: "POST", path: "/v1/tickets", role: fleet.RoleAdmin, body: bad}, 400, fleet.BadRequest)
	}
	w.refuses(request{method: "POST", path: "/v1/tickets", role: fleet.RoleAdmin, body: api.TicketRequest{Role: fleet.TicketHub, Replace: "n-9"}}, 404, fleet.NotFound)
}
