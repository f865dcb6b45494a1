package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// record makes the golden data directory of a hub of this release, where testdata has none.
// One that is there is of a release that people run, and is never made anew.
var record = flag.Bool("record", false, "make the golden data directory of a hub")

// goldenHubs are the archives of releases, with hub/ as a hub left it and said.txt, what it
// said of its jobs. Those of all releases that are read stay here.
var goldenHubs = []string{"hub-release-1.tar.gz"}

// saidOf gives what a hub says of its jobs, by what they were to show.
func saidOf(m *mesh.Mesh) string {
	m.T.Helper()
	var list api.Jobs
	m.JSON(&list, "job", "list", "--json")
	var out []string
	for _, j := range list.Jobs {
		id := string(j.ID)
		logs, _, _ := m.Try("job", "logs", id) // one that waits has none
		said := []string{"job " + id, string(m.Job(id).State), logs}
		if j.Spec.Repo != nil && j.State == fleet.Succeeded {
			said = append(said, m.Run("job", "diff", id))
		}
		out = append(out, strings.Join(said, "\n"))
	}
	slices.Sort(out)
	var tokens api.Tokens
	m.JSON(&tokens, "token", "list", "--json")
	for _, k := range tokens.Tokens {
		out = append(out, "token "+k.Name+" "+string(k.Role))
	}
	return strings.Join(out, "\n")
}

// TestGoldenHubs: a hub goes on with the data directory of every release that it reads: log,
// state, keys, tokens, output and files.
func TestGoldenHubs(t *testing.T) {
	t.Parallel()
	if *record {
		recordHub(t, filepath.Join("testdata", goldenHubs[len(goldenHubs)-1]))
	}
	for _, name := range goldenHubs {
		m := mesh.New(t)
		if out, err := exec.Command("tar", "-xzf", filepath.Join("testdata", name), "-C", m.Dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		want, err := os.ReadFile(filepath.Join(m.Dir, "said.txt"))
		if err != nil {
			t.Fatal(err)
		}
		m.StartHub()
		if got := saidOf(m); got != string(want) {
			t.Errorf("the hub says\n%s\nand of its release\n%s", got, want)
		}
		if got := m.Run("hub", "status"); !strings.Contains(got, "default_harness = codex") {
			t.Errorf("its settings are gone:\n%s", got)
		}
		// Its log is written on, and a machine joins it.
		var jobs api.Jobs
		m.JSON(&jobs, "job", "list", "--json")
		waiting := slices.IndexFunc(jobs.Jobs, func(j api.Job) bool { return j.State == fleet.Queued })
		if waiting < 0 {
			t.Fatal("no job waits any more")
		}
		m.StartRunner()
		if j := m.Ended(string(jobs.Jobs[waiting].ID), time.Minute); j.State != fleet.Succeeded {
			t.Errorf("the job that waited is %s (%s)", j.State, j.Reason.Detail)
		}
	}
}

// recordHub has a hub do something of everything, and packs its directory.
func recordHub(t *testing.T, file string) {
	if _, err := os.Stat(file); err == nil {
		t.Fatalf("%s is there, and is not made anew", file)
	}
	m := mesh.New(t)
	// What is old must not go before it is looked at.
	m.Hub = m.Launch("hub", "hub", "run", "--data-dir", filepath.Join(m.Dir, "hub"), "--listen", m.Listen, "--bootstrap",
		"--keep-jobs", "36500d", "--keep-output", "36500d", "--keep-audit", "36500d")
	m.Eventually(15*time.Second, "the hub is ready", func() bool { _, _, code := m.Try("hub", "status"); return code == 0 })
	m.StartRunner()
	m.Online()
	m.Run("exec", "--", "sh", "-c", "echo to be read; echo and this >&2")
	m.Run("exec", "--repo", m.Repository("app"), "--", "sh", "-c", "echo more > made.txt")
	if _, _, code := m.Try("exec", "--retries", "0", "--", "false"); code != 1 {
		t.Fatalf("a job that fails ends with %d", code)
	}
	m.Run("hub", "set", "default_harness", "codex")
	m.Run("token", "create", "--role", "viewer", "--name", "watch")
	m.Eventually(time.Minute, "all output is sealed", func() bool {
		var list api.Jobs
		m.JSON(&list, "job", "list", "--json")
		return !slices.ContainsFunc(list.Jobs, func(j api.Job) bool { return !j.Log.Sealed })
	})
	m.Runner.Stop()
	m.Run("runner", "remove", "r1")
	m.Run("exec", "--detach", "--", "true")
	said := m.Write(filepath.Join(m.Dir, "said.txt"), saidOf(m))
	m.Hub.Stop()
	out, err := exec.Command("tar", "-czf", file, "--owner=0", "--group=0", "--numeric-owner", "--sort=name", "--exclude=hub/ballast", "-C", m.Dir, "hub", filepath.Base(said)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
