//go:build installers && linux

package installers

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// TestDockerComesAndGoes has jobs that need Docker beside a daemon that is killed and
// started again: they wait for it and say so, the others go on, and people are told.
func TestDockerComesAndGoes(t *testing.T) {
	d := startDocker(t)
	m := mesh.New(t)
	m.Vars = []string{"DOCKER_HOST=unix://" + d.dir + "/docker.sock"}
	m.Config = "env_names: [DOCKER_HOST]\n"
	m.StartHub()
	m.StartRunner()
	m.Online()
	runner := func() (r api.Runner) { m.JSON(&r, "runner", "get", "r1", "--json"); return r }
	docker := func(want fleet.DockerState) {
		t.Helper()
		eventually(t, 70*time.Second, "the hub hears that Docker is "+string(want), func() bool {
			r := runner()
			return r.Health.Sample != nil && r.Health.Sample.Docker.State == want
		})
	}
	why := func(id string) string {
		var e struct {
			Runners []struct{ Code, Detail, Change string }
		}
		m.JSON(&e, "job", "explain", id, "--json")
		b, _ := json.Marshal(e)
		return string(b)
	}

	docker(fleet.DockerReady)
	if h := runner().Health.Sample; h.Docker.Version == "" || h.Docker.Compose == "" || h.Docker.ComposeBy == "" {
		t.Errorf("of Docker the hub knows %+v; want versions, and which command of Compose answered", h.Docker)
	}
	first := m.Detach("exec", "--docker", "--", "docker", "version", "--format", "server {{.Server.Version}}")
	if j := m.Ended(first, time.Minute); j.State != fleet.Succeeded {
		t.Fatalf("with Docker the job is %s: %+v", j.State, j.Reason)
	}

	d.kill()
	failing := m.Detach("exec", "--", "docker", "ps")
	if j := m.Ended(failing, time.Minute); j.State != fleet.Failed || j.FailureClass != fleet.ClassDocker {
		t.Errorf("a job that finds no Docker is %s, %s; want failed, %s", j.State, j.FailureClass, fleet.ClassDocker)
	}
	m.Run("job", "retry", failing)
	docker(fleet.DockerDown)
	waits := m.Detach("exec", "--docker", "--", "docker", "ps")
	for _, id := range []string{failing, waits} { // the first of them has learned that it needs Docker
		eventually(t, 30*time.Second, "the reason of job "+id+" is Docker", func() bool {
			return strings.Contains(why(id), string(fleet.DockerMissing))
		})
		if j := m.Job(id); j.State != fleet.Queued {
			t.Errorf("job %s, which needs Docker, is %s", id, j.State)
		}
	}
	if j := m.Ended(m.Detach("exec", "--", "true"), time.Minute); j.State != fleet.Succeeded {
		t.Errorf("a job that needs no Docker is %s", j.State)
	}
	eventually(t, 30*time.Second, "people are told that Docker was lost", func() bool {
		return strings.Contains(m.Run("alerts", "--json"), `"docker_lost"`)
	})

	d.start()
	for _, id := range []string{waits, failing} {
		if j := m.Ended(id, 90*time.Second); j.State != fleet.Succeeded {
			t.Errorf("when Docker is back job %s is %s: %+v", id, j.State, j.Reason)
		}
	}
	eventually(t, 30*time.Second, "people are told that Docker is back", func() bool {
		return strings.Contains(m.Run("alerts", "--json"), `"recovered"`)
	})
}
