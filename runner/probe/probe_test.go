package probe

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tugline.dev/tugline/shared/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain gives a sampler of this machine without its Docker and its commands.
func plain(t *testing.T) *Sampler {
	t.Helper()
	dir := t.TempDir()
	return New(Config{Workspace: dir, Cache: filepath.Join(dir, "repos"), Env: []string{"DOCKER_HOST=unix://" + dir + "/none.sock"}})
}

func TestSampleOfThisMachine(t *testing.T) {
	s := plain(t)
	for range 2 { // the second is compared with the first
		h := s.Sample(t.Context())
		for _, v := range []fleet.Volume{h.Workspace, h.Cache} {
			if !v.Known || v.Free <= 0 || v.Total < v.Free || v.Detail != "" {
				t.Errorf("volume = %+v", v)
			}
		}
		if h.Workspace.Total != h.Cache.Total {
			t.Errorf("a directory that is not there yet has the volume %+v, want that of its parent %+v", h.Cache, h.Workspace)
		}
		if h.Memory == nil || h.Memory.Total <= 0 || h.Memory.Available <= 0 || h.Memory.Available > h.Memory.Total {
			t.Errorf("memory = %+v", h.Memory)
		}
		if h.CPU == nil || h.CPU.Count < 1 || h.CPU.Load < 0 || h.CPU.Used < 0 || h.CPU.Used > 1 {
			t.Errorf("processors = %+v", h.CPU)
		}
		if h.IO == nil || h.IO.Busy < 0 || h.IO.Busy > 1 {
			t.Errorf("disks = %+v", h.IO)
		}
		if h.Uptime <= 0 || h.Zone == "" {
			t.Errorf("uptime = %v, zone = %q", h.Uptime, h.Zone)
		}
		if h.Docker.State != fleet.DockerAbsent || h.Docker.Verified {
			t.Errorf("docker = %+v, want absent", h.Docker)
		}
	}
}

func TestDiskOfNoPath(t *testing.T) {
	dir := t.TempDir()
	v, err := Disk(t.Context(), filepath.Join(dir, "a", "b"))
	if err != nil || !v.Known || v.Free <= 0 {
		t.Errorf("a path to be made: %+v, %v", v, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	v, err = Disk(t.Context(), filepath.Join(file, "below"))
	if !errors.Is(err, ErrUnknown) || v.Known || v.Detail == "" {
		t.Errorf("a path below a file: %+v, %v, want ErrUnknown", v, err)
	}
}

// waitFor looks again and again until ok.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
