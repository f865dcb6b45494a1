package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/api"
)

func TestContextsAreKeptAndChosen(t *testing.T) {
	s := newShell(t, "")
	file := filepath.Join(s.home, ".config", "tugline", "config.yaml")
	s.in = strings.NewReader("tgl_one\n")
	s.must("context", "add", "one", "--hub", "https://one.test:7440/")
	st, err := os.Stat(file)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%s: %v %v, want mode 0600", file, st, err)
	}
	s.must("context", "add", "two", "--hub", "http://two.test", "--token", "tgl_two")
	has(t, "the list", s.must("context", "list"), "*  two", "http://two.test", "https://one.test:7440")
	if strings.Contains(s.out.String(), "tgl_") {
		t.Errorf("the list shows a token: %s", s.out)
	}
	s.must("context", "use", "one")
	got, err := s.spot()
	if want := (hubSpot{Hub: "https://one.test:7440", Token: "tgl_one"}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the current hub is %+v, %v, want %+v", got, err, want)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if code := s.do("job", "list"); code != exitUsage || !strings.Contains(s.err.String(), "chmod 600") {
		t.Errorf("a file that others may read: exit %d, %s", code, s.err)
	}
	if err := os.WriteFile(file, []byte("current: x\nbogus: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := s.do("context", "list"); code == exitOK {
		t.Error("a file with an unknown key was read")
	}
}

func TestWhichHubIsMeant(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	devURL := "http://" + l.Addr().String()
	write := func(s *shell, name, text string) {
		t.Helper()
		dir := s.devDir()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		dev  string
		kept bool
		env  []string
		flag hubSpot
		want hubSpot
		code int
	}{
		{name: "nothing", code: exitUsage},
		{name: "a dev that runs", dev: devURL, want: hubSpot{Hub: devURL, Token: "tgl_dev"}},
		{name: "a dev that does not run", dev: "http://127.0.0.1:1", code: exitUsage},
		{name: "a context before a dev", dev: devURL, kept: true, want: hubSpot{Hub: "https://kept.test", Token: "tgl_kept"}},
		{name: "environment before a context", kept: true, env: []string{"TUGLINE_HUB=http://env.test", "TUGLINE_TOKEN=tgl_env"}, want: hubSpot{Hub: "http://env.test", Token: "tgl_env"}},
		{name: "flags before environment", env: []string{"TUGLINE_HUB=http://env.test", "TUGLINE_TOKEN=tgl_env"}, flag: hubSpot{Hub: "http://flag.test", Token: "tgl_flag"}, want: hubSpot{Hub: "http://flag.test", Token: "tgl_flag"}},
		{name: "a kept token goes to its own hub", kept: true, flag: hubSpot{Hub: "https://KEPT.test/"}, want: hubSpot{Hub: "https://KEPT.test", Token: "tgl_kept"}},
		{name: "a kept token goes to no other hub", kept: true, dev: devURL, flag: hubSpot{Hub: "https://evil.test"}, code: exitUnauthorised},
		{name: "another token for the kept hub", kept: true, flag: hubSpot{Token: "tgl_flag"}, want: hubSpot{Hub: "https://kept.test", Token: "tgl_flag"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShell(t, "", c.env...)
			if c.dev != "" {
				write(s, "hub.url", c.dev+"\n")
				write(s, "operator.token", "tgl_dev\n")
			}
			if c.kept {
				s.must("context", "add", "k", "--hub", "https://kept.test", "--token", "tgl_kept")
			}
			s.app.hub, s.app.token = c.flag.Hub, c.flag.Token
			got, err := s.spot()
			if exitCode(err) != c.code || err == nil && !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, exit %d (%v), want %+v, exit %d", got, exitCode(err), err, c.want, c.code)
			}
		})
	}
}

func TestTokenDoesNotFollowARedirect(t *testing.T) {
	thief := script(t, map[string]http.HandlerFunc{})
	srv := script(t, map[string]http.HandlerFunc{"GET /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, thief.URL+"/v1/jobs", http.StatusTemporaryRedirect)
	}})
	if code := newShell(t, srv.URL).do("job", "list"); code != exitFailed {
		t.Errorf("exit %d, want 1", code)
	}
}

func TestPublicCAIsTrustedWhereGiven(t *testing.T) {
	srv := newTLS(t, func(w http.ResponseWriter, r *http.Request) { answer(w, 200, api.Jobs{Jobs: []api.Job{}}) })
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pemOf(srv), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newShell(t, srv.URL)
	s.must("job", "list", "--ca-file", ca)
	s.environ = append(s.environ, "TUGLINE_CA_FILE="+ca)
	s.must("job", "list")
	if code := s.do("job", "list", "--ca-file", os.DevNull); code != exitUsage {
		t.Errorf("a CA file without a certificate: exit %d, want 2", code)
	}
}

func TestTokenThatIsNone(t *testing.T) {
	s := newShell(t, "http://127.0.0.1:1") // nothing may be asked of it
	for _, token := range []string{"tgl_a\nb", "tgl_a b", "tgl_ü"} {
		if code := s.do("job", "list", "--token", token); code != exitUsage || !strings.Contains(s.err.String(), "no token has") || strings.Contains(s.err.String(), "tgl_") {
			t.Errorf("%q: exit %d, %s; want 2, and the token not told", token, code, s.err)
		}
	}
}
