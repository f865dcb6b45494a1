//go:build bench

package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

const (
	crowdBeat = 15 * time.Second // between the heartbeats of one runner
	crowdTurn = 2 * crowdBeat    // what is measured of each
)

// measureCrowd connects very many simulated runners to a hub that leads. The runners
// live in a second process, and the hub in a third.
func measureCrowd(t *testing.T, s *sheet) {
	t.Run("plain", func(t *testing.T) {
		m := mesh.New(t)
		m.StartHub()
		crowded(t, s, m, "plain", "http://"+m.Listen, nil, "", 28)
	})
	t.Run("tls", func(t *testing.T) {
		m, url, pool := tlsHub(t)
		crowded(t, s, m, "TLS", url, pool, filepath.Join(m.Dir, "cert.pem"), 52)
	})
}

// crowded measures a hub with 1,000 and with 10,000 connected runners: idle ones, and
// with every tenth at work.
func crowded(t *testing.T, s *sheet, m *mesh.Mesh, how, url string, pool *x509.CertPool, ca string, most float64) {
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer hc.CloseIdleConnections()
	c := &client{t, url, "Bearer " + m.Token(), hc}
	ask := converse(t, crowdProcess(t, url, ca))
	all := []int{1000, 10000}
	for done := 0; done < all[1]; done += 1000 { // a ticket's bound
		enough(t, ask("enrol "+ticketOf(t, c, 1000)))
	}
	pid := pidOf(t, m, "hub run")
	<-time.After(5 * time.Second)
	bare, _ := resident(t, pid)
	threads := c.gauge("go_goroutines")
	for _, n := range all {
		what := fmt.Sprintf("%s runners, %s", thousands(n), how)
		enough(t, ask(fmt.Sprint("link ", n)))
		<-time.After(5 * time.Second) // the beats spread out
		idle := watch(t, ask, pid)
		full, _ := resident(t, pid)
		size := (full - bare) / float64(n) / 1024
		if n == all[1] {
			s.most(what+": hub's memory a runner", "KiB", most, fmt.Sprintf("≤ %.0f KiB", most), size)
		} else {
			s.note(what+": hub's memory a runner", "KiB", size)
		}
		s.note(what+": hub's goroutines a runner", "", (c.gauge("go_goroutines")-threads)/float64(n))
		idle.say(t, s, what+", idle", n == all[1])
		jobs := work(t, c, n/10)
		<-time.After(crowdBeat) // every runner that was told has begun
		busy := watch(t, ask, pid)
		if busy.Working < n/10*9/10 {
			t.Errorf("%d of %d runners are at work", busy.Working, n/10)
		}
		busy.say(t, s, what+", 10 % at work", n == all[1])
		full, _ = resident(t, pid)
		s.note(what+", 10 % at work: hub's memory a runner", "KiB", (full-bare)/float64(n)/1024)
		rest(t, c, ask, jobs)
	}
}

// thousands writes a number as people do.
func thousands(n int) string {
	text := strconv.Itoa(n)
	return text[:len(text)-3] + "," + text[len(text)-3:]
}

// view is what the crowd and the hub's process showed over a time.
type view struct {
	told
	passed time.Duration
	cpu    time.Duration // of the hub's process
}

// watch has the crowd count for a time.
func watch(t *testing.T, ask func(string) string, pid int) (v view) {
	t.Helper()
	begin, before := time.Now(), cpu(t, pid)
	if err := json.Unmarshal([]byte(ask("count "+crowdTurn.String())), &v.told); err != nil {
		t.Fatal(err)
	}
	v.passed, v.cpu = time.Since(begin), cpu(t, pid)-before
	if v.Error != "" {
		t.Fatal(v.Error)
	}
	return v
}

func (v view) say(t *testing.T, s *sheet, what string, aim bool) {
	if len(v.Took) == 0 {
		t.Fatal("no heartbeat was answered")
	}
	s.note("   "+what+": heartbeats", "/s", float64(len(v.Took))/v.passed.Seconds())
	s.note("   "+what+": CPU of the hub, of one processor", "%", 100*v.cpu.Seconds()/v.passed.Seconds())
	s.note("   "+what+": CPU of the hub a heartbeat", "µs", float64(v.cpu.Microseconds())/float64(len(v.Took)))
	s.note("   "+what+": reply p50", "ms", median(v.Took))
	if aim {
		s.most(what+": reply p99", "ms", 100, "< 100 ms", quantile(v.Took, 0.99))
	} else {
		s.note("   "+what+": reply p99", "ms", quantile(v.Took, 0.99))
	}
}

// work gives the hub jobs and waits until each is at work.
func work(t *testing.T, c *client, n int) []fleet.JobID {
	t.Helper()
	ids := make([]fleet.JobID, n)
	side(t, n, func(i int) error {
		ids[i] = c.submit("true")
		return nil
	})
	return ids
}

// rest takes the jobs away again, and waits until nobody is at work.
func rest(t *testing.T, c *client, ask func(string) string, jobs []fleet.JobID) {
	t.Helper()
	side(t, len(jobs), func(i int) error {
		res, err := c.do(context.Background(), http.MethodPost, "/v1/jobs/"+string(jobs[i])+"/cancel", struct{}{})
		if err == nil {
			res.Body.Close()
		}
		return err
	})
	for end := time.Now().Add(2 * time.Minute); ; <-time.After(time.Second) {
		var v told
		if err := json.Unmarshal([]byte(ask("count 0s")), &v); err != nil {
			t.Fatal(err)
		}
		if v.Working == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d runners are still at work", v.Working)
		}
	}
}

func enough(t *testing.T, answer string) {
	t.Helper()
	if answer = strings.TrimSpace(answer); answer != "ok" {
		t.Fatal(answer)
	}
}

// gauge gives a metric of the hub.
func (c *client) gauge(name string) float64 {
	res, err := c.do(context.Background(), http.MethodGet, "/metrics", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if is, value, _ := strings.Cut(lines.Text(), " "); is == name {
			v, _ := strconv.ParseFloat(value, 64)
			return v
		}
	}
	c.t.Fatalf("the hub does not tell %s", name)
	return 0
}

const crowdEnv = "BENCH_CROWD" // the hub's URL: this process is a crowd of runners

func crowdProcess(t *testing.T, url, ca string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), crowdEnv+"="+url, crowdEnv+"_CA="+ca)
	return c
}
