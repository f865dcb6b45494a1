package main

import (
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// beside gives the shell of the same user on the same machine in another terminal.
func (s *shell) beside() *shell {
	o := newShell(s.t, "")
	o.home, o.environ = s.home, append([]string(nil), s.environ...)
	return o
}

func TestCommandsFindTheHubThatRunsHere(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := filepath.Join(t.TempDir(), "hub data")
	h := newShell(t, "")
	end := h.start("hub", "run", "--data-dir", dir, "--listen", "0.0.0.0:0", "--bootstrap")
	eventually(t, "the ticket", func() bool { return strings.Contains(h.out.String(), "TUGLINE_TICKET=tug1_") })
	has(t, "the welcome", h.out.String(), "find it by themselves", "export TUGLINE_HUB=")
	s := h.beside()
	has(t, "the ticket", s.must("hub", "ticket", "--ttl", "1m"), "tug1_")
	files, err := filepath.Glob(filepath.Join(h.home, ".config", "tugline", "hubs", "*.yaml"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the files are %v, %v; want one", files, err)
	}
	if st, err := os.Stat(files[0]); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v %v; want mode 0600", files[0], st, err)
	}
	token := strings.TrimSpace(readFile(t, filepath.Join(dir, "operator.token")))
	if strings.Contains(readFile(t, files[0]), token) {
		t.Error("the token is in the file; its name is enough")
	}
	has(t, "the list", s.must("context", "list")+s.err.String(), dir+", runs")
	// Another user, or another home, sees nothing of it.
	if code := newShell(t, "").do("job", "list"); code != exitUsage {
		t.Errorf("another home: exit %d", code)
	}
	if code := h.stop(end); code != exitOK {
		t.Errorf("the hub ended with %d\n%s", code, h.err)
	}
	if code := s.do("job", "list"); code != exitUsage || !strings.Contains(s.err.String(), "does not answer; start it again with `tugline hub run --data-dir '"+dir+"'`") {
		t.Errorf("with the hub stopped: exit %d, %s", code, s.err)
	}
	has(t, "the list", s.must("context", "list")+s.err.String(), dir+", does not answer")
}

func TestWhichHubHereIsMeant(t *testing.T) {
	listen := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return "http://" + l.Addr().String()
	}
	one, two := listen(), listen()
	const dead = "http://127.0.0.1:1"
	keep := func(s *shell, url, token string, at time.Time) string {
		t.Helper()
		dir := t.TempDir()
		file := filepath.Join(dir, "operator.token")
		if token != "" {
			if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.keepLocalHub(localHub{Hub: url, Dir: dir, TokenFile: file, Again: "tugline again", At: at}); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(s.localHubsDir(), localHubFile(dir))
	}
	now := time.Now()
	fails := func(name string, s *shell, code int, words ...string) {
		t.Helper()
		_, err := s.spot()
		if exitCode(err) != code {
			t.Errorf("%s: exit %d (%v); want %d", name, exitCode(err), err, code)
			return
		}
		has(t, name, err.Error(), words...)
	}
	gives := func(name string, s *shell, want hubSpot) {
		t.Helper()
		if got, err := s.spot(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	s := newShell(t, "")
	keep(s, one, "tgl_one", now)
	gives("one that runs", s, hubSpot{Hub: one, Token: "tgl_one"})
	keep(s, dead, "tgl_dead", now.Add(time.Hour))
	gives("one that runs beside a newer one that does not", s, hubSpot{Hub: one, Token: "tgl_one"})
	s.app.hub = one + "/"
	gives("named by its URL", s, hubSpot{Hub: one, Token: "tgl_one"})
	s.app.hub = "https://evil.test"
	fails("another hub", s, exitUnauthorised, "no token for the hub https://evil.test")
	s.app.hub = ""
	s.app.token = "tgl_flag"
	gives("with another token", s, hubSpot{Hub: one, Token: "tgl_flag"})
	s.app.token = ""
	keep(s, two, "tgl_two", now)
	fails("two that run", s, exitUsage, "2 hubs run here", one, two, "--hub")
	s.must("context", "add", "k", "--hub", "https://kept.test", "--token", "tgl_kept")
	gives("a context before them", s, hubSpot{Hub: "https://kept.test", Token: "tgl_kept"})

	s = newShell(t, "", "TUGLINE_HUB=http://env.test", "TUGLINE_TOKEN=tgl_env")
	keep(s, one, "tgl_one", now)
	gives("the environment before it", s, hubSpot{Hub: "http://env.test", Token: "tgl_env"})

	s = newShell(t, "")
	keep(s, one, "", now)
	fails("a token that is gone", s, exitUnauthorised, "its token can't be read", "TUGLINE_TOKEN")

	s = newShell(t, "")
	file := keep(s, one, "tgl_one", now)
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	fails("a file that others may write", s, exitUsage, "no hub is known")

	s = newShell(t, "")
	gone := keep(s, dead, "tgl_gone", now.Add(time.Hour))
	l := s.localHubs()
	if err := os.RemoveAll(l[0].Dir); err != nil {
		t.Fatal(err)
	}
	fails("one whose data are gone", s, exitUsage, "no hub is known")
	keep(s, dead, "tgl_dead", now)
	if _, err := os.Stat(gone); err == nil {
		t.Error("the entry of data that are gone is still there after another hub started")
	}
	fails("a hub that does not answer", s, exitUsage, dead, "start it again with `tugline again`")
}
