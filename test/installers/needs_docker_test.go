//go:build installers && linux

package installers

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// TestDockerComesAndGoes has jobs that need Docker beside a daemon that fills the disk,
// freezes, is killed and is started again: they wait for it and say so, the others go on,
// people are told, and the runner is heard all the time.
func TestDockerComesAndGoes(t *testing.T) {
	d := startDocker(t)
	const filler = 8 << 20
	blob := make([]byte, filler)
	rand.Read(blob)
	write(t, filepath.Join(d.dir, "image", "blob"), string(blob), 0o644)
	must(t, exec.Command("tar", "-C", filepath.Join(d.dir, "image"), "-cf", filepath.Join(d.dir, "image.tar"), "blob"))
	d.docker("import", filepath.Join(d.dir, "image.tar"), "filler:1")

	m := mesh.New(t)
	m.Vars = []string{"DOCKER_HOST=unix://" + d.dir + "/docker.sock"}
	m.Config = "env_names: [DOCKER_HOST]\nfloors: {select: 900TiB}\n" // which no disk has: for automation it is full
	m.StartHub()
	m.StartRunner()
	m.Online()
	heard := listen(m)
	runner := func() (r api.Runner) { m.JSON(&r, "runner", "get", "r1", "--json"); return r }
	docker := func(want fleet.DockerState) {
		t.Helper()
		eventually(t, 30*time.Second, "the hub hears that Docker is "+string(want), func() bool {
			r := runner()
			return r.Health.Sample != nil && r.Health.Sample.Docker.State == want
		})
	}
	alerts := func() (a api.Alerts) { m.JSON(&a, "alerts", "--json"); return a }
	told := func(kind string) bool {
		for _, a := range alerts().Alerts {
			if a.Kind == kind {
				return true
			}
		}
		return false
	}
	waits := func(id string, code fleet.Code, words string) {
		t.Helper()
		why := ""
		eventually(t, 30*time.Second, "job "+id+" waits for "+string(code)+", "+words, func() bool {
			var e struct {
				Runners []struct {
					Code   fleet.Code
					Detail string
				}
			}
			m.JSON(&e, "job", "explain", id, "--json")
			b, _ := json.Marshal(e)
			if why != string(b) {
				why = string(b)
				t.Logf("job %s: %s", id, why)
			}
			return len(e.Runners) == 1 && e.Runners[0].Code == code && strings.Contains(e.Runners[0].Detail, words)
		})
		if j := m.Job(id); j.State != fleet.Queued {
			t.Errorf("job %s is %s, want it queued", id, j.State)
		}
	}
	succeeds := func(id string, within time.Duration) {
		t.Helper()
		if j := m.Ended(id, within); j.State != fleet.Succeeded {
			t.Errorf("job %s is %s: %+v, %s", id, j.State, j.Reason, j.FailureClass)
		}
	}

	// Everything is there, and which command is Compose is on record.
	docker(fleet.DockerReady)
	by, version := "docker compose", ""
	for _, argv := range [][]string{{"docker", "compose", "version"}, {"docker-compose", "version"}} {
		if out, err := exec.Command(argv[0], argv[1:]...).Output(); err == nil {
			by, version = strings.TrimSuffix(strings.Join(argv, " "), " version"), string(out)
			break
		}
	}
	h := runner().Health.Sample.Docker
	if h.Compose == "" || h.ComposeBy != by || !strings.Contains(version, h.Compose) || !h.Verified {
		t.Errorf("of Compose the hub knows %+v; want that %s answered, which says %s", h, by, version)
	}
	if is := strings.TrimSpace(d.docker("version", "--format", "{{.Server.Version}}")); h.Version != is {
		t.Errorf("of Docker the hub knows %+v; want version %s", h, is)
	}
	succeeds(m.Detach("exec", "--docker", "--", "docker", "version"), time.Minute)

	// What fills the disk is told with Docker's part of it.
	eventually(t, 30*time.Second, "people are told of the disk, and what Docker takes of it", func() bool {
		for _, a := range alerts().Alerts {
			for p := a.Pressure; p != nil; p = nil {
				for _, u := range p.Usage {
					if u.Class == "docker" && u.Bytes >= filler && u.Bytes < 8*filler {
						return true
					}
				}
			}
		}
		return false
	})

	// A daemon that hangs is not known, is no alarm, and holds nothing up.
	if err := syscall.Kill(d.pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	docker(fleet.DockerUnknown)
	needs := m.Detach("exec", "--docker", "--", "docker", "ps")
	waits(needs, fleet.DockerMissing, "does not know in time")
	begun := time.Now()
	succeeds(m.Detach("exec", "--", "true"), 10*time.Second)
	t.Logf("beside a daemon that hangs a job took %v", time.Since(begun))
	if told("docker_lost") {
		t.Error("a daemon that is not known is told as lost")
	}

	// A daemon that is gone is learned of by the job that fails for it.
	d.kill()
	failing := m.Detach("exec", "--", "docker", "ps")
	if j := m.Ended(failing, time.Minute); j.State != fleet.Failed || j.FailureClass != fleet.ClassDocker {
		t.Errorf("a job that finds no Docker is %s, %s; want failed, %s", j.State, j.FailureClass, fleet.ClassDocker)
	}
	m.Run("job", "retry", failing)
	for _, id := range []string{failing, needs} {
		waits(id, fleet.CircuitRefuses, "Docker was not there for a job")
	}
	succeeds(m.Detach("exec", "--", "true"), 10*time.Second)
	docker(fleet.DockerDown)

	// The circuit is closed by a person, and then it is the daemon that they wait for.
	var open api.Circuits
	m.JSON(&open, "circuit", "list", "--json")
	if len(open.Circuits) != 1 || open.Circuits[0].Class != fleet.CircuitDocker || open.Circuits[0].Until == nil {
		t.Fatalf("the circuits are %+v; want one of Docker that ends by itself", open.Circuits)
	}
	m.Run("circuit", "reset", open.Circuits[0].Key, "--reason", "the daemon is started")
	for _, id := range []string{failing, needs} {
		waits(id, fleet.DockerMissing, "Docker "+h.Version+" last answered")
	}
	eventually(t, 40*time.Second, "people are told that Docker was lost", func() bool { return told("docker_lost") })

	d.start()
	for _, id := range []string{needs, failing} {
		succeeds(id, 30*time.Second)
	}
	eventually(t, 30*time.Second, "people are told that Docker is back", func() bool { return told("recovered") })
	heard()
}

// pid is the daemon itself: it took the place of the first process of its namespace.
func (d *daemon) pid() int {
	n, err := strconv.Atoi(d.inside)
	if err != nil || n < 2 {
		d.t.Fatalf("the daemon's process is %q", d.inside)
	}
	return n
}

// listen looks all the time at when a runner was heard of last. What it gives ends that,
// and fails the test where a heartbeat was late or the sample grew old.
func listen(m *mesh.Mesh) (end func()) {
	const latest = 10*time.Second*6/5 + 2*time.Second // the interval of one that has nothing to do, what chance adds, and a busy machine
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		var last time.Time
		beats, longest := 0, time.Duration(0)
		for fresh := false; ; {
			select {
			case <-tick.C:
			case <-stop:
				m.T.Logf("%d heartbeats, the longest time between two was %v", beats, longest)
				if longest > latest {
					m.T.Errorf("between two heartbeats were %v, want %v at most", longest, latest)
				}
				return
			}
			req, _ := http.NewRequest(http.MethodGet, "http://"+m.Listen+"/v1/runners/r1", nil)
			req.Header.Set("Authorization", "Bearer "+m.Token())
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				m.T.Errorf("look at the runner: %v", err)
				continue
			}
			var r api.Runner
			err = json.NewDecoder(res.Body).Decode(&r)
			res.Body.Close()
			if err != nil || r.LastBeat == nil {
				m.T.Errorf("look at the runner: %v, %+v", err, r)
				continue
			}
			if !last.IsZero() && !r.LastBeat.Equal(last) {
				beats++
				longest = max(longest, r.LastBeat.Sub(last))
			}
			last = *r.LastBeat
			if r.State != "online" || fresh && !r.Health.Fresh {
				m.T.Errorf("the runner is %s, and that its sample is fresh is %v", r.State, r.Health.Fresh)
			}
			fresh = fresh || r.Health.Fresh
		}
	})
	var once sync.Once
	end = func() { once.Do(func() { close(stop); work.Wait() }) }
	m.T.Cleanup(end)
	return end
}
