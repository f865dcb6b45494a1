package process

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Files as version 1 writes them. A runner meets supervisors of earlier releases, so these must be read for good.
const (
	launchV1 = `{"version":1,"marker":"test-launch-v1","output_cap":1000,"segment_bytes":200000,"min_free_bytes":3,"timeout":4000000000,` +
		`"idle":5000000000,"first_response":6000000000,"stop_signal":"INT","grace":7000000000,"umask":18,` +
		`"argv":["c2g=","LWM=","ZWNobyBoaQ=="],"dir":"Lw==","env":["UEFUSD0vYmlu"],"stdin_file":"L2Rldi9udWxs"}`
	startedV1 = `{"version":1,"boot":"b","supervisor":{"pid":2,"start_time":3},"child":{"pid":4,"start_time":5},` +
		`"marker":"test-started-v1","cgroup":"/c","started_at":"2026-01-02T03:04:05.000000006Z"}`
	exitV1 = `{"code":-1,"signal":"SIGTERM","started_at":"2026-01-02T03:04:05Z","finished_at":"2026-01-02T03:04:06Z",` +
		`"reason":"timeout","bytes":1,"dropped_bytes":2,"spool_bytes":3,"swept":4,"detail":"d"}`
)

func TestFilesOfVersion1(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{launchFile: launchV1, startedFile: startedV1, exitFile: exitV1} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	wantLaunch := Launch{
		Version: 1, Argv: []string{"sh", "-c", "echo hi"}, Dir: "/", Env: []string{"PATH=/bin"}, StdinFile: "/dev/null",
		Marker: "test-launch-v1", OutputCap: 1000, SegmentBytes: 200000, MinFreeBytes: 3, Timeout: 4 * time.Second,
		Idle: 5 * time.Second, FirstResponse: 6 * time.Second, StopSignal: "INT", Grace: 7 * time.Second, Umask: 0o022,
	}
	wantStarted := Started{
		Version: 1, Boot: "b", Supervisor: Identity{PID: 2, StartTime: 3}, Child: Identity{PID: 4, StartTime: 5},
		Marker: "test-started-v1", Cgroup: "/c", StartedAt: at.Add(6),
	}
	wantExit := Exit{
		Code: -1, Signal: "SIGTERM", StartedAt: at, FinishedAt: at.Add(time.Second), Reason: ReasonTimeout,
		Bytes: 1, DroppedBytes: 2, SpoolBytes: 3, Swept: 4, Detail: "d",
	}
	doc, err := readLaunch(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantLaunch, doc.Launch); diff != "" {
		t.Errorf("launch (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantStarted, readStarted(dir, startedFile)); diff != "" {
		t.Errorf("started (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&wantExit, readExit(dir)); diff != "" {
		t.Errorf("exit (-want +got):\n%s", diff)
	}

	// What is written now reads the same, byte for byte.
	for name, c := range map[string]struct {
		write func(dir string) error
		want  string
	}{
		launchFile:  {func(dir string) error { return writeLaunch(dir, wantLaunch) }, launchV1},
		startedFile: {func(dir string) error { return writeDoc(dir, startedFile, wantStarted) }, startedV1},
		exitFile:    {func(dir string) error { return commitExit(dir, wantExit) }, exitV1},
	} {
		if err := c.write(dir); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestLaunchOfALaterVersionIsRefused(t *testing.T) {
	if _, err := (Launch{Version: 2, Argv: []string{"true"}, Dir: "/", Marker: "test-version-2"}).withDefaults(); err == nil {
		t.Error("no error")
	}
}
