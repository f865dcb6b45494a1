package installers

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// site is a hub as the script sees it, and a machine on which the script runs.
type site struct {
	t       *testing.T
	dir     string
	srv     *httptest.Server
	asked   atomic.Int64
	program string            // what is served: a script that notes how it was run
	cut     func(try int) int // after how many bytes of an answer the connection ends; negative: it goes on
	plain   bool              // it knows no ranges
	path    string            // PATH of whoever runs it
	pin     string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), path: "/usr/bin:/bin"}
	s.program = fmt.Sprintf("#!/bin/sh\nprintf '%%s\\n' \"$PATH\" \"$@\" >'%[1]s/ran'\ncat >'%[1]s/stdin'\n", s.dir)
	s.srv = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		try := s.asked.Add(1)
		if want := "/v1/binaries/" + runtime.GOOS + "/" + runtime.GOARCH; r.URL.Path != want {
			t.Errorf("it asks for %s, want %s", r.URL.Path, want)
		}
		if s.plain {
			r.Header.Del("Range")
		}
		if s.cut != nil {
			if n := s.cut(int(try)); n >= 0 {
				w = &short{w, n}
			}
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(s.program))
	}))
	s.srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.srv.Close)
	sum := sha256.Sum256(s.srv.Certificate().RawSubjectPublicKeyInfo)
	s.pin = "sha256//" + base64.StdEncoding.EncodeToString(sum[:])
	for _, d := range []string{"tmp", "home"} {
		if err := os.Mkdir(filepath.Join(s.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// short is an answer that breaks off.
type short struct {
	http.ResponseWriter
	left int
}

func (s *short) Write(p []byte) (int, error) {
	if len(p) <= s.left {
		s.left -= len(p)
		return s.ResponseWriter.Write(p)
	}
	s.ResponseWriter.Write(p[:s.left])
	s.ResponseWriter.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// ticket names the program, as a hub does beside others.
func (s *site) ticket() string {
	sum := sha256.Sum256([]byte(s.program))
	return wire.Ticket{
		Hubs: []string{s.srv.URL}, Cluster: "c-test", Trust: wire.TrustPin, Pin: make([]byte, 32), Secret: "a secret", ExpiresAt: time.Unix(2e9, 0).UTC(),
		Mesh: []wire.HubAddress{{Node: "n1", Key: strings.Repeat("a", 64), Endpoints: []string{"192.0.2.1:7441"}}},
		Programs: map[string]fleet.Digest{
			runtime.GOOS + "-" + runtime.GOARCH: fleet.Digest(hex.EncodeToString(sum[:])),
			"plan9-386":                         fleet.Digest(strings.Repeat("0", 64)), "zos-s390x": fleet.Digest(strings.Repeat("1", 64)),
		},
	}.String()
}

func (s *site) script() string {
	return Script + "\nmain '" + s.srv.URL + "' '" + s.pin + `' "$@"` + "\n"
}

// run has a shell read the script from standard input, as after a pipe.
func (s *site) run(shell, script string, args ...string) (out string, code int) {
	s.t.Helper()
	words := append(strings.Fields(shell), append([]string{"-s", "--"}, args...)...)
	c := exec.Command(words[0], words[1:]...)
	c.Stdin = strings.NewReader(script)
	c.Env = []string{"PATH=" + s.path, "HOME=" + filepath.Join(s.dir, "home"), "TMPDIR=" + filepath.Join(s.dir, "tmp")}
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	err := c.Run()
	if c.ProcessState == nil {
		s.t.Fatal(err)
	}
	return b.String(), c.ProcessState.ExitCode()
}

// ran gives how the program was run, and forgets it.
func (s *site) ran() (args []string, stdin string) {
	b, err := os.ReadFile(filepath.Join(s.dir, "ran"))
	if err != nil {
		return nil, ""
	}
	in, _ := os.ReadFile(filepath.Join(s.dir, "stdin"))
	os.Remove(filepath.Join(s.dir, "ran"))
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"), string(in)
}

// left gives what stays in the temporary directory and at home.
func (s *site) left() (names []string) {
	for _, d := range []string{"tmp", "home"} {
		entries, err := os.ReadDir(filepath.Join(s.dir, d))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, filepath.Join(d, e.Name()))
		}
	}
	return names
}

// shells are those of this machine that may be /bin/sh somewhere.
func shells(t *testing.T) (all []string) {
	t.Helper()
	for _, s := range []string{"/bin/sh", "/bin/dash", "/bin/bash --posix", "/bin/ksh", "/bin/zsh --emulate sh", "/bin/busybox sh"} {
		if _, err := os.Stat(strings.Fields(s)[0]); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// hostile puts programs first in the PATH that say that they were run.
func (s *site) hostile() {
	s.t.Helper()
	bad := filepath.Join(s.dir, "bad")
	if err := os.Mkdir(bad, 0o755); err != nil {
		s.t.Fatal(err)
	}
	for _, name := range []string{"curl", "sha256sum", "shasum", "openssl", "base64", "uname", "mktemp", "sed", "tr", "cut", "rm", "chmod", "printf", "cat", "sh", "tugline"} {
		text := "#!/bin/sh\necho " + name + " >>'" + s.dir + "/hostile'\nexit 0\n"
		if err := os.WriteFile(filepath.Join(bad, name), []byte(text), 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	s.path = bad + ":" + s.path
}

func TestTheScriptInstallsWhatTheTicketNames(t *testing.T) {
	for _, shell := range shells(t) {
		for _, hostile := range []bool{false, true} {
			s := newSite(t)
			if hostile {
				s.hostile()
			}
			// The program that was served is a script of /bin/sh, and finds cat by the PATH that it is given.
			s.program = strings.Replace(s.program, "cat >", "/bin/cat >", 1)
			k := s.ticket()
			out, code := s.run(shell, s.script(), k, "--slots", "2", "--name", "Ada's own")
			if code != 0 {
				t.Fatalf("%s: exit %d\n%s", shell, code, out)
			}
			args, stdin := s.ran()
			if want := []string{s.path, "runner", "install", "--ticket", "-", "--slots", "2", "--name", "Ada's own"}; !slices.Equal(args, want) || stdin != k+"\n" {
				t.Errorf("%s: the program was run with %q and %q", shell, args, stdin)
			}
			if b, err := os.ReadFile(filepath.Join(s.dir, "hostile")); err == nil {
				t.Errorf("%s: programs of the PATH were run: %s", shell, b)
			}
			if left := s.left(); len(left) > 0 {
				t.Errorf("%s: it left %q", shell, left)
			}
		}
	}
}

func TestTheScriptRunsNothingElse(t *testing.T) {
	for _, shell := range shells(t) {
		for _, k := range []struct {
			name  string
			what  func(s *site) (script string, args []string)
			says  string
			asked int64
		}{
			{"another program", func(s *site) (string, []string) {
				k := s.ticket()
				s.program += "# more\n"
				return s.script(), []string{k}
			}, "nothing was installed", 1},
			{"another key", func(s *site) (string, []string) {
				s.pin = "sha256//" + base64.StdEncoding.EncodeToString(make([]byte, 32))
				return s.script(), []string{s.ticket()}
			}, "could not be fetched", 0},
			{"no pin, and nobody certifies it", func(s *site) (string, []string) {
				s.pin = ""
				return s.script(), []string{s.ticket()}
			}, "could not be fetched", 0},
			{"no program of this platform", func(s *site) (string, []string) {
				return s.script(), []string{wire.Ticket{Hubs: []string{s.srv.URL}, Secret: "s", Plain: true, Programs: map[string]fleet.Digest{"plan9-386": "00"}}.String()}
			}, "the hub has no program for", 0},
			{"no ticket", func(s *site) (string, []string) { return s.script(), nil }, "usage", 0},
			{"another ticket", func(s *site) (string, []string) { return s.script(), []string{"tughub1_AAAA"} }, "no ticket for a runner", 0},
			{"a ticket with blanks", func(s *site) (string, []string) { return s.script(), []string{s.ticket() + " $(touch x)"} }, "does not belong there", 0},
			{"half a ticket", func(s *site) (string, []string) { k := s.ticket(); return s.script(), []string{k[:len(k)/3]} }, "", 0},
		} {
			s := newSite(t)
			script, args := k.what(s)
			out, code := s.run(shell, script, args...)
			if code == 0 || !strings.Contains(out, k.says) {
				t.Errorf("%s, %s: exit %d, want that it fails and says %q\n%s", shell, k.name, code, k.says, out)
			}
			if args, _ := s.ran(); args != nil {
				t.Errorf("%s, %s: a program was run: %q", shell, k.name, args)
			}
			if n := s.asked.Load(); n != k.asked {
				t.Errorf("%s, %s: the hub was asked %d times, want %d", shell, k.name, n, k.asked)
			}
			if left := s.left(); len(left) > 0 {
				t.Errorf("%s, %s: it left %q", shell, k.name, left)
			}
		}
	}
}

// A download that breaks off goes on from there, or begins anew where that can't be; one
// that breaks off again and again is given up.
func TestTheScriptGoesOnWithADownload(t *testing.T) {
	for _, k := range []struct {
		name  string
		cut   func(s *site, try int) int
		plain bool
		fails bool
	}{
		{"cut at random", func(s *site, try int) int {
			if try > 3 {
				return -1
			}
			return rand.IntN(len(s.program) / 4)
		}, false, false},
		{"no ranges", func(s *site, try int) int {
			if try > 1 {
				return -1
			}
			return len(s.program) / 2
		}, true, false},
		{"nothing but breaks", func(*site, int) int { return 10 }, false, true},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.program += strings.Repeat("# and what makes it long\n", 20_000)
			s.plain, s.cut = k.plain, func(try int) int { return k.cut(s, try) }
			out, code := s.run("/bin/sh", s.script(), s.ticket())
			args, _ := s.ran()
			if k.fails && (code == 0 || args != nil || !strings.Contains(out, "could not be fetched") || s.asked.Load() != 6) {
				t.Errorf("exit %d after %d requests, ran %q\n%s", code, s.asked.Load(), args, out)
			}
			if !k.fails && (code != 0 || args == nil || s.asked.Load() < 2) {
				t.Errorf("exit %d after %d requests\n%s", code, s.asked.Load(), out)
			}
			if left := s.left(); len(left) > 0 {
				t.Errorf("it left %q", left)
			}
		})
	}
}

var sparse = flag.Int("sparse", 13, "within its functions the script is cut at every so many bytes")

// A script that was cut short, wherever, does nothing.
func TestAScriptThatWasCutShortDoesNothing(t *testing.T) {
	s := newSite(t)
	whole, k := s.script(), s.ticket()
	last := strings.LastIndex(strings.TrimSuffix(whole, "\n"), "\n")
	first := rand.IntN(*sparse)
	for at := 0; at < len(whole)-1; at++ {
		if at < last && at%*sparse != first {
			continue // within the functions it is all the same
		}
		out, _ := s.run("/bin/sh", whole[:at], k)
		if args, _ := s.ran(); args != nil || s.asked.Load() > 0 {
			t.Fatalf("cut at %d of %d it asked the hub %d times and ran %q\n%s", at, len(whole), s.asked.Load(), args, out)
		}
		if left := s.left(); len(left) > 0 {
			t.Fatalf("cut at %d it left %q", at, left)
		}
	}
	if out, code := s.run("/bin/sh", whole, k); code != 0 {
		t.Errorf("whole: exit %d\n%s", code, out)
	}
}

func TestTheScriptIsWellMade(t *testing.T) {
	for _, bad := range []string{"eval ", "[[", "local ", "function ", "$'", "sudo "} {
		if strings.Contains(Script, bad) {
			t.Errorf("it has %q", bad)
		}
	}
	if lines := strings.Split(strings.TrimSpace(Script), "\n"); lines[len(lines)-1] != "}" {
		t.Errorf("something is done outside of functions: %q", lines[len(lines)-1])
	}
	if at, err := exec.LookPath("shellcheck"); err == nil {
		c := exec.Command(at, "-s", "sh", "-")
		c.Stdin = strings.NewReader(Script + "\nmain 'https://hub' '' \"$@\"\n")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("shellcheck: %v\n%s", err, out)
		}
	}
}
