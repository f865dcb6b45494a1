package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// mostKills bounds a storm, so that its jobs also get to their end.
const mostKills = 30

// storm runs jobs on eight slots while hub and runner are killed at random. Every job
// must end exactly once: succeeded with its output whole to the last byte, or lost,
// where the kill fell between the intent to start it and its start; never run twice.
func storm(t *testing.T, jobs int, every time.Duration) {
	m := mesh.New(t)
	m.Slots = 8
	m.StartHub()
	m.StartRunner()
	m.Online()
	script := m.Write(filepath.Join(m.Dir, "work.sh"), `echo once >> "$1/$2"
i=0
while [ $i -lt 40 ]; do echo "$2 line $i of some output that is long enough to be cut in pieces"; i=$((i+1)); done
sleep 0.$3
echo "$2 end"
`)
	ran := filepath.Join(m.Dir, "ran")
	os.MkdirAll(ran, 0o755)
	ids := make([]string, jobs)
	var wg sync.WaitGroup
	next := make(chan int)
	for range 4 {
		wg.Go(func() {
			for i := range next {
				out, errs, code := m.Try("exec", "--detach", "--", "sh", script, ran, fmt.Sprint(i), fmt.Sprint(rand.IntN(5)))
				if code != 0 {
					t.Errorf("submit %d: exit %d: %s", i, code, errs)
				}
				ids[i] = strings.TrimSpace(out)
			}
		})
	}
	submitted := make(chan struct{})
	go func() {
		for i := range jobs {
			next <- i
		}
		close(next)
		wg.Wait()
		close(submitted)
	}()
	kills := 0
	active := func() bool {
		select {
		case <-submitted:
		default:
			return true
		}
		var list api.Jobs
		m.JSON(&list, "job", "list", "--active", "--json")
		return len(list.Jobs) > 0
	}
	for kills < mostKills && active() {
		<-time.After(every)
		switch rand.IntN(3) {
		case 0:
			m.Runner.Kill()
			m.StartRunner()
		case 1:
			m.Hub.Kill()
			m.StartHub()
		case 2:
			m.Runner.Kill()
			m.Hub.Kill()
			m.StartHub()
			m.StartRunner()
		}
		kills++
	}
	var lost, succeeded int
	for i, id := range ids {
		j := m.Ended(id, 4*time.Minute)
		b, err := os.ReadFile(filepath.Join(ran, fmt.Sprint(i)))
		switch {
		case j.State == fleet.Succeeded && string(b) == "once\n":
			succeeded++
		case j.State == fleet.Lost && (os.IsNotExist(err) || string(b) == "once\n"):
			lost++
			continue
		default:
			t.Errorf("job %d is %s (%s) and ran as %q", i, j.State, j.Reason.Detail, b)
			continue
		}
		m.Eventually(time.Minute, "the log is sealed", func() bool { return m.Job(id).Log.Sealed })
		want := sha256.New()
		for k := range 40 {
			fmt.Fprintf(want, "%d line %d of some output that is long enough to be cut in pieces\n", i, k)
		}
		fmt.Fprintf(want, "%d end\n", i)
		got := sha256.Sum256([]byte(m.Run("job", "logs", id)))
		if hex.EncodeToString(got[:]) != hex.EncodeToString(want.Sum(nil)) {
			t.Errorf("job %d: its output is not what it wrote", i)
		}
	}
	t.Logf("%d jobs, %d kills: %d succeeded, %d lost", jobs, kills, succeeded, lost)
	if succeeded < jobs*8/10 {
		t.Errorf("only %d of %d succeeded", succeeded, jobs)
	}
}

func TestStormOfKills(t *testing.T) { storm(t, 500, 900*time.Millisecond) }
