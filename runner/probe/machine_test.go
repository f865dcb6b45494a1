package probe

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"tugline.dev/tugline/shared/fleet"
)

// machine gives a sampler of a machine that is made of files, by path.
func machine(t *testing.T, files map[string]string) *Sampler {
	t.Helper()
	s := New(Config{Env: []string{"X=1"}})
	s.root, s.goos = t.TempDir(), "linux"
	put(t, s.root, files)
	return s
}

func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// stat is the kernel's table with such a line of all processors.
func stat(line string) map[string]string {
	return map[string]string{
		"proc/loadavg": "1.25 0.50 0.25 1/100 4242\n",
		"proc/cpuinfo": "processor\t: 0\nmodel name\t: x\n\nprocessor\t: 1\nmodel name\t: x\n",
		"proc/stat":    line + "\ncpu0 50 5 25 400 20 0 0 0 0 0\ncpu1 50 5 25 400 20 0 0 0 0 0\nintr 1 2 3 4 5\n",
	}
}

func TestProcessors(t *testing.T) {
	const first = "cpu  10000 1000 5000 80000 4000 500 500 0 0 0"
	for _, c := range []struct {
		line string
		want float64
	}{
		{"cpu  15000 1000 5000 82000 7000 500 500 0 2500 0", 0.5}, // the guests' time is in the users'
		{"cpu  20000 1000 5000 80000 4000 500 500 0 0 0", 1},
		{"cpu  9000 1000 5000 90000 4000 500 500 0 0 0", 0}, // counters may go back a little
		{first, 0}, // and stand still: the machine is looked at twice
	} {
		s := machine(t, stat(first))
		if got, err := s.readCPU(t.Context()); err != nil || got.Used != 0 || got.Count != 2 || got.Load != 1.25 {
			t.Fatalf("the first sample = %+v, %v", got, err)
		}
		put(t, s.root, stat(c.line))
		if got, err := s.readCPU(t.Context()); err != nil || got.Used < c.want-1e-9 || got.Used > c.want+1e-9 {
			t.Errorf("%s: %+v, %v, want %v used", c.line, got, err, c.want)
		}
	}
	for _, line := range []string{"", "cpu  x 1 1 1", "cpu  0 0 0 0 0 0 0 0", "intr 1 2 3 4 5 6 7 8"} {
		if got, err := machine(t, stat(line)).readCPU(t.Context()); !errors.Is(err, ErrUnknown) {
			t.Errorf("of %q: %+v, %v, want ErrUnknown", line, got, err)
		}
	}
	if got, err := machine(t, nil).readCPU(t.Context()); !errors.Is(err, ErrUnknown) {
		t.Errorf("without any table: %+v, %v, want ErrUnknown", got, err)
	}
}

func TestMemory(t *testing.T) {
	s := machine(t, map[string]string{"proc/meminfo": "MemTotal:       32000 kB\nMemFree:         1000 kB\nMemAvailable:   20000 kB\nBuffers: 1 kB\n"})
	if got, err := s.readMemory(t.Context()); err != nil || *got != (fleet.Memory{Total: 32000 << 10, Available: 20000 << 10}) {
		t.Errorf("memory = %+v, %v", got, err)
	}
	for _, files := range []map[string]string{nil, {"proc/meminfo": "MemTotal: much kB\n"}} {
		if got, err := machine(t, files).readMemory(t.Context()); !errors.Is(err, ErrUnknown) {
			t.Errorf("of %v: %+v, %v, want ErrUnknown", files, got, err)
		}
	}
}

// A file of the kernel's that does not answer costs what is read from it, and nothing
// else; and it is asked once, however often it is looked at.
func TestFileThatHangs(t *testing.T) {
	t.Parallel()
	whole := stat("cpu  10000 1000 5000 80000 4000 500 500 0 0 0")
	whole["proc/meminfo"] = "MemTotal: 32000 kB\nMemAvailable: 20000 kB\n"
	whole["proc/diskstats"] = " 259 0 nvme0n1 10 0 10 10 10 0 10 10 0 1000 40\n"
	for _, path := range []string{"proc/meminfo", "proc/stat", "proc/loadavg", "proc/diskstats"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := machine(t, whole)
			s.cfg = plain(t).cfg
			at := s.file(path)
			if err := os.Remove(at); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(at, 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 2*firstPause)
				h := s.Sample(ctx)
				cancel()
				for part, known := range map[string]bool{"memory": h.Memory != nil, "processors": h.CPU != nil, "disks": h.IO != nil} {
					if hangs := part == whose[path]; known == hangs {
						t.Errorf("while %s hangs, that the %s are known is %v", path, part, known)
					}
				}
				if !h.Workspace.Known || h.Uptime <= 0 || h.Zone == "" {
					t.Errorf("while %s hangs the sample is %+v", path, h)
				}
			}
			s.looks.mu.Lock()
			hung := len(s.looks.under)
			s.looks.mu.Unlock()
			if hung != 1 {
				t.Errorf("%d looks hang, want 1", hung)
			}
			end, err := os.OpenFile(at, os.O_RDWR, 0) // the look ends when there is a writer that goes
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the look ends", func() bool {
				s.looks.mu.Lock()
				defer s.looks.mu.Unlock()
				if end != nil {
					end.Close()
					end = nil
				}
				return len(s.looks.under) == 0
			})
		})
	}
}

// What the machine says may be something that a library panics of: it is not known.
func TestFileThatIsEmpty(t *testing.T) {
	t.Parallel()
	files := stat("cpu  10000 1000 5000 80000 4000 500 500 0 0 0")
	files["proc/loadavg"] = ""
	s := machine(t, files)
	s.cfg = plain(t).cfg
	if h := s.Sample(t.Context()); h.CPU != nil || !h.Workspace.Known {
		t.Errorf("the sample is %+v, want everything but the processors", h)
	}
}

// whose names what is read from a file.
var whose = map[string]string{"proc/meminfo": "memory", "proc/stat": "processors", "proc/loadavg": "processors", "proc/diskstats": "disks"}

func TestDisks(t *testing.T) {
	s := machine(t, nil)
	look := func(worked string) busy {
		t.Helper()
		put(t, s.root, map[string]string{"proc/diskstats": `   7       0 loop0 9 0 9 9 0 0 0 0 0 99999 99999
 259       0 nvme0n1 10 0 10 10 10 0 10 10 0 ` + worked + ` 40
 259       1 nvme0n1p1 10 0 10 10 10 0 10 10 0 100 40
   8       0 sda 1 1
`})
		b, err := s.readBusy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	was := look("1000")
	want := map[string]time.Duration{"nvme0n1": time.Second, "nvme0n1p1": 100 * time.Millisecond}
	if diff := cmp.Diff(want, was.work); diff != "" {
		t.Errorf("disks (-want +got):\n%s", diff)
	}
	now := look("3500")
	now.at = was.at.Add(10 * time.Second)
	if got := now.since(was); got != 0.25 {
		t.Errorf("busy = %v, want 0.25", got)
	}
	if got := was.since(busy{at: was.at.Add(-time.Second), work: now.work}); got != 0 {
		t.Errorf("after the counter began anew: %v, want 0", got)
	}
	if got := now.since(now); got != 0 {
		t.Errorf("at once: %v, want 0", got)
	}
	if got, err := machine(t, nil).readIO(t.Context()); !errors.Is(err, ErrUnknown) {
		t.Errorf("without a table: %+v, %v, want ErrUnknown", got, err)
	}
}

func TestPressure(t *testing.T) {
	s := machine(t, map[string]string{
		"proc/pressure/cpu": "some avg10=27.08 avg60=18.23 avg300=29.48 total=17403942704\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=0\n",
		"proc/pressure/io":  "some avg10=NaN avg60=0\n",
	})
	if got := s.pressure("cpu"); got != 27.08 {
		t.Errorf("cpu = %v, want 27.08", got)
	}
	if a, b := s.pressure("io"), s.pressure("memory"); a != 0 || b != 0 {
		t.Errorf("what is not told = %v and %v, want 0", a, b)
	}
}

func TestMemoryOfACgroup(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{
		"a/memory.current": "3000", "a/memory.max": "10000\n", "a/memory.stat": "anon 1\ninactive_file 1000\n",
		"a/b/memory.current": "100", "a/b/memory.max": "max\n",
	})
	m := fleet.Memory{Total: 50000, Available: 9000}
	limit(&m, filepath.Join(root, "a/b"))
	if want := (fleet.Memory{Total: 10000, Available: 8000}); m != want {
		t.Errorf("memory = %+v, want %+v", m, want)
	}
	put(t, root, map[string]string{"a/memory.current": "20000"})
	if limit(&m, filepath.Join(root, "a")); m.Available != 1 {
		t.Errorf("with nothing left: %+v, want 1 byte, as 0 is not known", m)
	}
}

func TestBatteries(t *testing.T) {
	battery := func(status, capacity string) map[string]string {
		return map[string]string{"sys/class/power_supply/BAT0/type": "Battery\n", "sys/class/power_supply/BAT0/status": status + "\n", "sys/class/power_supply/BAT0/capacity": capacity + "\n"}
	}
	with := func(m map[string]string, more ...string) map[string]string {
		for i := 0; i < len(more); i += 2 {
			m["sys/class/power_supply/"+more[i]] = more[i+1]
		}
		return m
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  *fleet.Power
	}{
		{"none", with(map[string]string{}, "AC/type", "Mains", "AC/online", "1"), nil},
		{"a mouse", with(map[string]string{}, "hid/type", "Battery", "hid/scope", "Device", "hid/status", "Discharging"), nil},
		{"on battery", with(battery("Discharging", "63"), "AC/type", "Mains", "AC/online", "0"), &fleet.Power{OnBattery: true, Percent: 63}},
		{"full and unplugged, not yet discharging", with(battery("Full", "100"), "AC/type", "Mains", "AC/online", "0"), &fleet.Power{OnBattery: true, Percent: 100}},
		{"plugged in", with(battery("Charging", "63"), "AC/type", "Mains", "AC/online", "1"), &fleet.Power{Percent: 63}},
		{"plugged in and too weak a plug", with(battery("Discharging", "63"), "AC/type", "Mains", "AC/online", "1"), &fleet.Power{Percent: 63}},
		{"charged by USB alone", with(battery("Charging", "x"), "ucsi/type", "USB", "ucsi/online", "1"), &fleet.Power{Percent: -1}},
		{"no plug told", battery("Discharging", "5"), &fleet.Power{OnBattery: true, Percent: 5}},
		{"two", with(battery("Discharging", "80"), "BAT1/type", "Battery", "BAT1/status", "Unknown", "BAT1/capacity", "20"), &fleet.Power{OnBattery: true, Percent: 50}},
		{"taken out", with(battery("Discharging", "80"), "BAT0/present", "0"), nil},
	} {
		p, err := machine(t, c.files).readPower(t.Context())
		if diff := cmp.Diff(c.want, p); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
	for text, want := range map[string]*fleet.Power{
		"Now drawing from 'Battery Power'\n -InternalBattery-0 (id=4653155)\t85%; discharging; 4:13 remaining present: true\n": {OnBattery: true, Percent: 85},
		"Now drawing from 'AC Power'\n -InternalBattery-0 (id=1)\t100%; charged; 0:00 remaining present: true\n":               {Percent: 100},
		"Now drawing from 'AC Power'\n": nil,
	} {
		if diff := cmp.Diff(want, parseBatteries(text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestZone(t *testing.T) {
	for _, c := range []struct {
		name, link, tz string
		files          map[string]string
		want           string
	}{
		{name: "link", link: "/usr/share/zoneinfo/Europe/Berlin", want: "Europe/Berlin"},
		{name: "link of macOS", link: "/var/db/timezone/zoneinfo/America/Argentina/Buenos_Aires", want: "America/Argentina/Buenos_Aires"},
		{name: "variable", link: "/usr/share/zoneinfo/Europe/Berlin", tz: ":Asia/Tokyo", want: "Asia/Tokyo"},
		{name: "variable with a path", tz: "/usr/share/zoneinfo/Asia/Tokyo", want: "Asia/Tokyo"},
		{name: "a rule is no name", tz: "CET-1CEST,M3.5.0,M10.5.0/3", files: map[string]string{"etc/timezone": "Europe/Vienna\n", "etc/localtime": "TZif"}, want: "Europe/Vienna"},
		{name: "nothing set", want: "UTC"},
		{name: "a copy without a name", files: map[string]string{"etc/localtime": "TZif"}, want: ""},
	} {
		s := machine(t, c.files)
		s.cfg.Env = []string{"TZ=" + c.tz}
		if c.link != "" {
			if err := os.MkdirAll(s.file("etc"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(c.link, s.file("etc/localtime")); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.readZone(t.Context()); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestIdle(t *testing.T) {
	now := time.Now()
	s := machine(t, map[string]string{
		"run/systemd/sessions/1":     "UID=1000\nCLASS=user\nSTATE=active\nTYPE=tty\nTTY=pts/0\n",
		"run/systemd/sessions/2":     "UID=1000\nCLASS=user\nSTATE=online\nTYPE=tty\nTTY=tty3\n",
		"run/systemd/sessions/3":     "UID=0\nCLASS=manager\nSTATE=active\nTYPE=unspecified\n",
		"run/systemd/sessions/4":     "UID=1000\nCLASS=user\nSTATE=closing\nTYPE=tty\nTTY=tty4\n",
		"run/systemd/sessions/1.ref": "", "dev/pts/0": "", "dev/tty3": "", "dev/tty4": "",
	})
	for name, ago := range map[string]time.Duration{"pts/0": time.Hour, "tty3": 10 * time.Minute, "tty4": time.Second} {
		if err := os.Chtimes(s.file("dev/"+name), now.Add(-ago), now); err != nil {
			t.Fatal(err)
		}
	}
	near := func(want time.Duration) {
		t.Helper()
		if got, err := s.readIdle(t.Context()); err != nil || got < want || got > want+time.Minute {
			t.Errorf("idle = %v, %v, want %v", got, err, want)
		}
	}
	near(10 * time.Minute)
	// A desktop tells logind, and is asked by a command.
	put(t, s.root, map[string]string{"run/systemd/sessions/5": "UID=1000\nCLASS=user\nSTATE=active\nTYPE=wayland\nTTY=tty2\n"})
	s.cfg.Env = []string{programs(t, map[string]string{"loginctl": `[ "$6" = 5 ] && printf 'IdleHint=no\nIdleSinceHint=0\n'`})}
	near(0)
	s.cfg.Env = []string{programs(t, map[string]string{"loginctl": "exit 1"})}
	if got, err := s.readIdle(t.Context()); err == nil || got != -1 {
		t.Errorf("where a desktop does not tell: %v, %v, want not known", got, err)
	}
	for text, want := range map[string]time.Duration{
		"IdleHint=yes\nIdleSinceHint=" + micros(now.Add(-time.Minute)):                                                                      time.Minute,
		"IdleHint=yes\nIdleSinceHint=" + micros(now.Add(-time.Hour)) + "\n\nIdleHint=yes\nIdleSinceHint=" + micros(now.Add(-2*time.Minute)): 2 * time.Minute,
		"IdleHint=yes\nIdleSinceHint=" + micros(now.Add(-time.Hour)) + "\n\nIdleHint=no\nIdleSinceHint=0":                                   0,
	} {
		if got, err := parseHints(text, now); err != nil || got.Round(time.Second) != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	if got, err := parseHints("IdleHint=yes\nIdleSinceHint=0\n", now); err == nil {
		t.Errorf("without a time: %v", got)
	}
	// Nobody is logged in.
	if got, err := machine(t, map[string]string{"run/systemd/sessions/x.ref": ""}).readIdle(t.Context()); err == nil || got != -1 {
		t.Errorf("nobody: %v, %v, want not known", got, err)
	}
}

func micros(at time.Time) string { return itoa(at.UnixMicro()) }
