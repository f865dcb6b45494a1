package service

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func TestSystemdIsTold(t *testing.T) {
	names := []string{filepath.Join(t.TempDir(), "notify")}
	if runtime.GOOS == "linux" {
		names = append(names, "@tugline-test-"+filepath.Base(t.TempDir())+time.Now().Format("150405.000000"))
	}
	for _, name := range names {
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		t.Setenv("NOTIFY_SOCKET", name)
		t.Setenv("WATCHDOG_USEC", "180000000")
		n := FromSystemd()
		if n.Watchdog != 3*time.Minute {
			t.Errorf("the watchdog is %s", n.Watchdog)
		}
		for _, v := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC"} {
			if is, there := os.LookupEnv(v); there {
				t.Errorf("processes started from here would get %s=%s", v, is)
			}
		}
		if err := n.Tell("READY=1"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if k, err := c.Read(b); err != nil || string(b[:k]) != "READY=1" {
			t.Errorf("it was told %q, %v", b[:k], err)
		}
	}
}

func TestNobodyIsToldWhereNobodyAsked(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "180000000")
	if n := FromSystemd(); n.Watchdog != 0 || n.Tell("READY=1") != nil {
		t.Errorf("%+v", n)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	t.Setenv("WATCHDOG_PID", "1")
	t.Setenv("WATCHDOG_USEC", "180000000")
	if n := FromSystemd(); n.Watchdog != 0 || n.Tell("READY=1") == nil {
		t.Errorf("of another process: %+v, or nobody listens and it is no error", n)
	}
}

func TestTheNoteOfBeingSentAway(t *testing.T) {
	dir := t.TempDir()
	if Away(dir) != "" || Starts(dir) != nil {
		t.Error("there is a note, or its absence is an error")
	}
	if err := StoodDown(dir, "revoked"); err != nil {
		t.Fatal(err)
	}
	if got := Away(dir); got != "revoked\n" {
		t.Errorf("the note is %q", got)
	}
	if err := Starts(dir); err != nil || Away(dir) != "" {
		t.Errorf("%v, %q", err, Away(dir))
	}
}
