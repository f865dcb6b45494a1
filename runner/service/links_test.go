package service

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The user of a daemon may put links into its own directories. Root gives away and changes nothing behind them.
func TestRootFollowsNoLinkOfTheServicesUser(t *testing.T) {
	const other = 65533
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{"runner", "runner/logs", "versions", "versions/1.0.0"} {
		dir := t.TempDir()
		outside := filepath.Join(dir, "outside")
		l := Layout{Init: Systemd, Mode: Daemon, Prefix: filepath.Join(dir, "prefix"), Data: filepath.Join(dir, "prefix", "runner"), User: "service"}
		for _, d := range []string{l.Data, filepath.Join(l.Prefix, "versions"), outside, filepath.Join(outside, "logs"), filepath.Join(outside, "1.0.0")} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		files := []string{filepath.Join(outside, "shadow"), filepath.Join(outside, "logs", "shadow")}
		for _, f := range files {
			if err := os.WriteFile(f, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		at := filepath.Join(l.Prefix, link)
		_ = os.Remove(at)
		if err := os.Symlink(outside, at); err != nil {
			t.Fatal(err)
		}
		w := &work{Request: Request{Layout: l, Program: exe, Version: "1.0.0", Say: func(string) {}}, uid: other, gid: other}
		var refused error
		for _, step := range []func() error{
			w.hand,
			func() error { return w.dir(l.Data, 0o700) },
			func() error { return w.dir(filepath.Join(l.Data, "logs"), 0o700) },
			w.program,
		} {
			if e := step(); e != nil {
				refused = e
			}
		}
		if refused == nil {
			t.Errorf("%s: nothing was said of the link", link)
		}
		for _, f := range append(files, outside) {
			st, err := os.Lstat(f)
			if err != nil {
				t.Fatal(err)
			}
			if uid := st.Sys().(*syscall.Stat_t).Uid; uid == other {
				t.Errorf("%s: %s was given away", link, strings.TrimPrefix(f, dir))
			}
		}
		if st, err := os.Stat(outside); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: the directory behind it is %v now, %v", link, st.Mode(), err)
		}
		if _, err := os.Lstat(filepath.Join(outside, "tugline")); err == nil {
			t.Errorf("%s: a program was put behind it", link)
		}
	}
}

// The record lies where the user of a daemon may write. Root takes away by it what an installation puts in place, and
// nothing else.
func TestARecordLeadsRootNowhereElse(t *testing.T) {
	t.Parallel()
	l := Lay(Systemd, Daemon, Folders{})
	r := Record{Version: 1, Mode: l.Mode, Init: l.Init, Prefix: l.Prefix, Unit: l.Unit, Link: l.Link, User: l.User}
	if err := r.Expect(l); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Record){
		"unit":   func(r *Record) { r.Unit = "/etc/passwd" },
		"prefix": func(r *Record) { r.Prefix = "/home/somebody" },
		"link":   func(r *Record) { r.Link = "/usr/bin/sudo" },
		"drop":   func(r *Record) { r.DropIn = "/etc/sudoers.d/x" },
		"brew": func(r *Record) {
			r.ManagedBy, r.Program, r.Link, r.DropIn = "deb", "/usr/bin/tugline", "", "/etc/passwd"
		},
		"mode": func(r *Record) { r.Mode = Agent },
	} {
		bad := r
		change(&bad)
		if err := bad.Expect(l); err == nil {
			t.Errorf("%s: passed", name)
		}
	}
	agent := Lay(Systemd, Agent, Folders{Home: "/home/a", Data: "/home/a/.local/share/tugline", Config: "/home/a/.config"})
	if err := (Record{Mode: Agent, Prefix: "/elsewhere"}).Expect(agent); err != nil {
		t.Errorf("an agent's own: %v", err)
	}
}
