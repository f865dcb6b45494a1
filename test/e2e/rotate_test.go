package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// secure is a mesh whose hub is certified by its own CA, which runners pin.
func secure(t *testing.T) *mesh.Mesh {
	m := mesh.New(t)
	_, port, err := net.SplitHostPort(m.Listen)
	if err != nil {
		t.Fatal(err)
	}
	m.Listen, m.Public = "0.0.0.0:"+port, "https://127.0.0.1:"+port
	m.StartHub()
	m.StartRunner()
	m.Online()
	return m
}

// held is what the runner holds of the keys, from its data directory.
type held struct {
	Master  uint64           `json:"master"`
	Rekey   *json.RawMessage `json:"rekey"`
	Signing []struct {
		ID string `json:"id"`
	} `json:"signing"`
	Pin  []byte   `json:"pin"`
	Pins [][]byte `json:"pins"`
}

func holds(m *mesh.Mesh) (h held) {
	m.T.Helper()
	b, err := os.ReadFile(filepath.Join(m.Dir, "runner", "identity.json"))
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		m.T.Fatal(err)
	}
	return h
}

// active gives the newest generation of a key, and how many there are.
func active(m *mesh.Mesh, kind string) (k api.Key, n int) {
	m.T.Helper()
	var ks api.Keys
	m.JSON(&ks, "hub", "keys", "--json")
	for _, one := range ks.Keys {
		if one.Kind == kind {
			n++
			if one.Active {
				k = one
			}
		}
	}
	return k, n
}

// follows waits until the runner holds what the hub uses, and only that.
func follows(m *mesh.Mesh, kind string, oldCA bool) {
	m.T.Helper()
	k, _ := active(m, kind)
	m.Eventually(40*time.Second, fmt.Sprintf("the runner follows to generation %d of the %s key", k.Generation, kind), func() bool {
		h := holds(m)
		switch kind {
		case fleet.KeyHMAC:
			now, _ := active(m, kind)
			return h.Master == k.Generation && h.Rekey == nil && now.Runners != nil && *now.Runners == 1
		case fleet.KeySigning:
			return h.Signing[len(h.Signing)-1].ID == k.ID
		}
		now, _ := active(m, kind)
		return now.Serves && (len(h.Pins) == 1) == oldCA
	})
}

// gated starts a job that runs until the gate is opened.
func gated(m *mesh.Mesh) (id, gate, ran string) {
	m.T.Helper()
	gate, ran = filepath.Join(m.Dir, "gate"), filepath.Join(m.Dir, "gated")
	script := m.Write(filepath.Join(m.Dir, "gated.sh"), `echo began >> "$2"
echo started
while [ ! -e "$1" ]; do sleep 0.1; done
echo ended >> "$2"
`)
	return started(m, "sh", script, gate, ran), gate, ran
}

func once(m *mesh.Mesh, id, gate, ran string) {
	m.T.Helper()
	m.Write(gate, "")
	j := m.Ended(id, 60*time.Second)
	b, _ := os.ReadFile(ran)
	if j.State != fleet.Succeeded || string(b) != "began\nended\n" || len(j.Turns[0].Attempts) != 1 {
		m.T.Errorf("the job under which keys were replaced is %s (%s), ran as %q in %d attempts; want once, whole", j.State, j.Reason.Detail, b, len(j.Turns[0].Attempts))
	}
}

// Each key is replaced under a job that runs; runner and hub are killed after each,
// and both know each other again.
func TestRotateUnderARunningJob(t *testing.T) {
	t.Parallel()
	m := secure(t)
	id, gate, ran := gated(m)
	for _, kind := range fleet.KeyKinds {
		args := []string{"hub", "rotate", kind}
		if kind == fleet.KeyCA {
			args = append(args, "--overlap", "20s")
		}
		out, errs, code := m.Try(args...)
		if code != 0 || !strings.Contains(out, "generation 2 of the "+kind+" key") || errs == "" {
			t.Fatalf("rotate %s: exit %d, %q, %q", kind, code, out, errs)
		}
		m.Run("exec", "--", "true") // its order is of the new key
		follows(m, kind, true)
		m.Runner.Kill()
		m.StartRunner()
		m.Online()
		m.Run("exec", "--", "true")
		m.Hub.Kill()
		m.StartHub()
		m.Online()
		m.Run("exec", "--", "true")
	}
	m.Eventually(90*time.Second, "the runner is told that the first CA has ended", func() bool {
		m.Run("exec", "--", "true") // time passes with what happens
		h := holds(m)
		return len(h.Pins) == 0
	})
	if pem, err := os.ReadFile(filepath.Join(m.Dir, "hub", "ca.pem")); err != nil || strings.Count(string(pem), "BEGIN") != 1 || m.Run("hub", "keys", "--ca") != string(pem) {
		t.Errorf("ca.pem after the overlap: %v\n%s", err, pem)
	}
	m.Runner.Kill()
	m.StartRunner()
	m.Online()
	once(m, id, gate, ran)
	if _, _, code := m.Try("hub", "rotate", "tls"); code != 2 {
		t.Errorf("rotate tls: exit %d; want 2", code)
	}
}

// A runner that is away while keys are replaced twice comes back, and does what was
// queued meanwhile.
func TestRunnerAwayDuringRotations(t *testing.T) {
	t.Parallel()
	m := secure(t)
	id, gate, ran := gated(m)
	m.Runner.Kill()
	for range 2 {
		for _, kind := range fleet.KeyKinds {
			m.Run("hub", "rotate", kind)
		}
	}
	queued := m.Detach("exec", "--", "true")
	for _, kind := range fleet.KeyKinds {
		if k, n := active(m, kind); k.Generation != 3 || n != 3 {
			t.Errorf("%s key is of generation %d of %d", kind, k.Generation, n)
		}
	}
	m.StartRunner()
	m.Online()
	if j := m.Ended(queued, 60*time.Second); j.State != fleet.Succeeded {
		t.Errorf("what was queued is %s (%s)", j.State, j.Reason.Detail)
	}
	follows(m, fleet.KeyHMAC, false)
	follows(m, fleet.KeySigning, false)
	m.Eventually(30*time.Second, "the runner pins all three CAs", func() bool { return len(holds(m).Pins) == 2 })
	once(m, id, gate, ran)
}

// A runner that was away for the whole overlap of a CA does not believe the hub any
// more, and is back with a new ticket.
func TestRunnerMissedTheOverlap(t *testing.T) {
	t.Parallel()
	m := secure(t)
	m.Runner.Kill()
	m.Run("hub", "rotate", "ca", "--overlap", "1s")
	m.Eventually(30*time.Second, "the overlap has ended", func() bool {
		m.Run("hub", "set", "default_harness", "codex") // time passes with what happens
		var ks api.Keys
		m.JSON(&ks, "hub", "keys", "--json")
		serves, holds := 0, 0
		for _, k := range ks.Keys {
			if k.Kind == fleet.KeyCA && k.Serves {
				serves = int(k.Generation)
			}
			if k.Kind == fleet.KeyCA && k.Holds {
				holds++
			}
		}
		return serves == 2 && holds == 1
	})
	m.StartRunner()
	m.Eventually(20*time.Second, "the runner says why it does not connect", func() bool { return strings.Contains(m.Runner.Said(), "hub ticket --for") })
	if out := m.Run("runner", "list", "--json"); strings.Contains(out, `"online"`) {
		t.Errorf("it is connected all the same: %s", out)
	}
	m.Runner.Stop()
	m.Extra = []string{"--ticket", strings.TrimSpace(m.Run("hub", "ticket", "--for", "r1"))}
	m.StartRunner()
	m.Online()
	m.Run("exec", "--", "true")
}

// The hub is killed while it replaces a key, sooner and later; the command that asked
// waits for it, and the key is replaced exactly once.
func TestHubKilledWhileRotating(t *testing.T) {
	t.Parallel()
	m := secure(t)
	id, gate, ran := gated(m)
	generation := uint64(1)
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 60 * time.Millisecond} {
		generation++
		for _, kind := range fleet.KeyKinds {
			type end struct {
				errs string
				code int
			}
			ended := make(chan end, 1)
			go func() {
				_, errs, code := m.Try("hub", "rotate", kind)
				ended <- end{errs, code}
			}()
			<-time.After(after)
			m.Hub.Kill()
			m.StartHub()
			if e := <-ended; e.code != 0 {
				t.Errorf("rotate %s, killed after %s: exit %d: %s", kind, after, e.code, e.errs)
			}
			if k, n := active(m, kind); k.Generation != generation || uint64(n) != generation {
				t.Errorf("rotate %s, killed after %s: generation %d of %d; want %d", kind, after, k.Generation, n, generation)
			}
		}
		m.Run("exec", "--", "true")
	}
	follows(m, fleet.KeyHMAC, true)
	follows(m, fleet.KeySigning, true)
	once(m, id, gate, ran)
}
