package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// npm is a program that installs as npm does, or fails in the ways that it is asked for.
const npm = `#!/bin/sh
for spec; do [ "$before" = --prefix ] && dir=$spec; before=$spec; done
echo "$*" >> "$0.calls"
version=${spec##*@}
case "$version" in
404) echo "npm error 404 https://user:hunter2@packages.example/codex $CODEX_API_KEY" >&2; exit 1;;
hang) mkdir -p "$dir/node_modules/half"; echo $$ > "$0.hangs"; while :; do sleep 0.05; done;;
latest) version=0.171.0;;
esac
mkdir -p "$dir/node_modules/@openai/codex" "$dir/node_modules/.bin"
echo '{"name":"@openai/codex","version":"'"$version"'"}' > "$dir/node_modules/@openai/codex/package.json"
sed "s/VERSION/$version/" "$0.cli" > "$dir/node_modules/.bin/codex"
chmod 755 "$dir/node_modules/.bin/codex"
`

// provisionedCLI answers as Codex does, and says what the key that it was given looks like.
const provisionedCLI = `#!/bin/sh
case "$1" in
--version) echo "codex-cli VERSION"; exit 0;;
login) echo "Not logged in" >&2; exit 1;;
esac
read -r prompt
printf %s "$CODEX_API_KEY" | sha256sum > seen.txt
echo '{"type":"thread.started","thread_id":"01a22b58-e674-74f2-906d-0f431ca24300"}'
echo '{"type":"turn.started"}'
echo '{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"with VERSION, key '$CODEX_API_KEY'"}}'
echo '{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":0,"output_tokens":10}}'
`

const givenKey = "sk-provision-0123456789abcdef"

// provisionRig is a mesh whose runner finds that npm.
func provisionRig(t *testing.T, rules string) (m *mesh.Mesh, program string) {
	m = mesh.New(t)
	program = withNPM(m)
	m.Config = rules
	m.StartHub()
	return m, program
}

func withNPM(m *mesh.Mesh) (program string) {
	m.T.Helper()
	program = m.Write(filepath.Join(m.Dir, "bin", "npm"), npm)
	m.Write(program+".cli", provisionedCLI)
	if err := os.Chmod(program, 0o755); err != nil {
		m.T.Fatal(err)
	}
	m.Vars = []string{"PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH")}
	return program
}

// provisions gives what the runner was asked to install, newest first.
func provisions(m *mesh.Mesh) []api.Provision {
	m.T.Helper()
	var all api.Provisions
	m.JSON(&all, "runner", "provision", "r1", "--list", "--json")
	return all.Provisioning
}

// keyIsNowhere looks for the key in all files below the mesh but one, and in all that
// its processes said.
func keyIsNowhere(m *mesh.Mesh, but ...string) {
	m.T.Helper()
	seen := 0
	err := filepath.WalkDir(m.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // what went away has nothing to tell
		}
		for _, b := range but {
			if path == b {
				return nil
			}
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		seen++
		if bytes.Contains(b, []byte(givenKey)) {
			m.T.Errorf("the key is in %s", path)
		}
		return nil
	})
	if err != nil || seen < 10 {
		m.T.Errorf("%d files were looked at: %v", seen, err)
	}
	for _, p := range []*mesh.Process{m.Hub, m.Runner} {
		if strings.Contains(p.Said(), givenKey) {
			m.T.Error("the key is in the log of a process")
		}
	}
	for _, args := range [][]string{{"runner", "get", "r1", "--json"}, {"runner", "provision", "r1", "--list", "--json"}, {"hub", "audit", "--json"}} {
		if strings.Contains(m.Run(args...), givenKey) {
			m.T.Errorf("the key is in the answer to %v", args)
		}
	}
}

// An agent is installed into a directory of the runner's own and used from there with
// the credentials that the hub gave; they are in one private file and in nothing else.
func TestAnAgentIsProvisioned(t *testing.T) {
	t.Parallel()
	m, program := provisionRig(t, "provision: {credentials: true}\n")
	m.Run("hub", "set", "auto_provision", "codex")
	m.StartRunner()
	m.Online()
	m.Eventually(time.Minute, "a new runner is given what every new one is", func() bool {
		all := provisions(m)
		return len(all) == 1 && all[0].State == fleet.ProvisionSucceeded && all[0].AskedBy == "auto_provision" && all[0].Installed == "0.171.0"
	})
	keys := m.Write(filepath.Join(m.Dir, "keys"), "# of the team\nCODEX_API_KEY="+givenKey+"\n")
	said := m.Run("runner", "provision", "r1", "codex", "--version", "0.172.1", "--credentials", keys, "--wait")
	if !strings.Contains(said, "codex 0.172.1: succeeded") || !strings.Contains(said, "CODEX_API_KEY") {
		t.Errorf("said %q", said)
	}
	m.Eventually(30*time.Second, "the hub hears what the runner has now", func() bool {
		var r api.Runner
		m.JSON(&r, "runner", "get", "r1", "--json")
		for _, h := range r.Harnesses {
			if h.Name == "codex" {
				return h.Version == "0.172.1" && h.SignedIn == "yes"
			}
		}
		return false
	})
	id := m.Detach("run", "--harness", "codex", "what are you?")
	if j := m.Ended(id, time.Minute); j.State != fleet.NeedsReview { // as all that leaves nothing but an answer
		t.Fatalf("the job is %s: %v", j.State, j.Reason)
	}
	if logs := m.Run("job", "logs", id); !strings.Contains(logs, "with 0.172.1, key ****") {
		t.Errorf("the job says %q", logs)
	}
	kept := filepath.Join(m.Dir, "runner", "provisioned", "codex", "credentials.json")
	if st, err := os.Stat(kept); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("credentials are kept: %v %v", st, err)
	}

	// A failure says why, is told without what is secret in it, and is not tried again.
	stdout, _, code := m.Try("runner", "provision", "r1", "codex", "--version", "404", "--credentials", keys, "--wait")
	if code != 1 || !strings.Contains(stdout, "failed (install)") || !strings.Contains(stdout, "404 https://***@packages.example") {
		t.Errorf("exit %d, %s", code, stdout)
	}
	calls := func() int {
		b, err := os.ReadFile(program + ".calls")
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(b, []byte("\n"))
	}
	if n := calls(); n != 3 {
		t.Errorf("npm was called %d times, want 3", n)
	}
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	keyIsNowhere(m, kept)

	// The switch stops what is asked for, and what was asked for before.
	m.Runner.Stop()
	m.Run("runner", "provision", "r1", "codex", "--version", "0.173.0")
	m.Run("hub", "set", "provisioning", "off")
	if _, stderr, code := m.Try("runner", "provision", "r1", "claude"); code == 0 || !strings.Contains(stderr, "switched off") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	m.StartRunner()
	m.Online()
	m.Ended(m.Detach("exec", "--", "true"), time.Minute) // by then there were heartbeats
	if all := provisions(m); all[0].State != fleet.ProvisionQueued || calls() != 3 {
		t.Errorf("with the switch off: %+v, npm was called %d times", all[0], calls())
	}
	m.Run("hub", "set", "provisioning", "")
	m.Eventually(time.Minute, "it goes on", func() bool { return provisions(m)[0].State == fleet.ProvisionSucceeded })
}

// A runner that is killed in the middle ends the installation at its next start, removes
// what is half made, and has what it had; its npm does not go on. That its disk has too
// little room for jobs is no reason to install nothing.
func TestAnInstallationIsKilled(t *testing.T) {
	t.Parallel()
	m, program := provisionRig(t, "min_free_bytes: 900TiB\n")
	m.StartRunner()
	m.Online()
	var r api.Runner
	if m.JSON(&r, "runner", "get", "r1", "--json"); !strings.HasPrefix(r.Declining, "storage: ") {
		t.Errorf("the runner declines jobs for %q", r.Declining)
	}
	m.Run("runner", "provision", "r1", "codex", "--wait")
	m.Run("runner", "provision", "r1", "codex", "--version", "hang")
	dir := filepath.Join(m.Dir, "runner", "provisioned", "codex")
	half := func() bool {
		found, err := filepath.Glob(filepath.Join(dir, ".new-*"))
		return err == nil && len(found) > 0
	}
	m.Eventually(30*time.Second, "npm is in the middle, and the hub knows", func() bool {
		_, err := os.Stat(program + ".hangs")
		return err == nil && half() && provisions(m)[0].State == fleet.ProvisionDelivered
	})
	if _, stderr, code := m.Try("runner", "provision", "r1", "--cancel", provisions(m)[0].ID); code == 0 || !strings.Contains(stderr, "delivered") {
		t.Errorf("what the runner has taken on is cancelled: exit %d, %s", code, stderr)
	}
	m.Runner.Kill()
	m.StartRunner()
	m.Eventually(time.Minute, "the outcome is told", func() bool {
		p := provisions(m)[0]
		return p.State == fleet.ProvisionFailed && p.Class == fleet.ProvisionInterrupted
	})
	if half() {
		t.Error("what is half made is still there")
	}
	if to, err := os.Readlink(filepath.Join(dir, "current")); err != nil || to != "0.171.0" {
		t.Errorf("in use is %q, %v", to, err)
	}
	for _, p := range m.Marked() {
		if strings.Contains(p, "npm") {
			t.Errorf("npm goes on: %s", p)
		}
	}
}

// What the owner does not allow is not done, whoever asks.
func TestOwnersDecideAboutProvisioning(t *testing.T) {
	t.Parallel()
	m, program := provisionRig(t, "provision: {allow: [codex]}\n")
	m.StartRunner()
	m.Online()
	keys := m.Write(filepath.Join(m.Dir, "keys"), "CODEX_API_KEY="+givenKey+"\n")
	for _, c := range []struct {
		args []string
		why  string
	}{
		{[]string{"claude"}, "does not let a hub install claude"},
		{[]string{"codex", "--credentials", keys}, "does not let a hub give credentials"},
	} {
		stdout, _, code := m.Try(append([]string{"runner", "provision", "r1", "--wait"}, c.args...)...)
		if code != 1 || !strings.Contains(stdout, "failed (owner_policy)") || !strings.Contains(stdout, c.why) {
			t.Errorf("%v: exit %d, %s", c.args, code, stdout)
		}
	}
	if _, err := os.Stat(program + ".calls"); err == nil {
		t.Error("npm was called")
	}
	keyIsNowhere(m, keys)
}

// Credentials are in the memory of the leader that took them and nowhere else: with another
// leader the installation waits, says so, and goes on when they are given anew.
func TestALeaderIsKilledBeforeDelivery(t *testing.T) {
	t.Parallel()
	c := mesh.NewCluster(t, 3)
	program := withNPM(c.Mesh)
	c.Config = "provision: {credentials: true}\n"
	c.StartRunner()
	c.Online()
	c.Runner.Stop()
	keys := c.Write(filepath.Join(c.Dir, "keys"), "CODEX_API_KEY="+givenKey+"\n")
	ask := []string{"runner", "provision", "r1", "codex", "--credentials", keys}
	c.Run(ask...)
	if all := provisions(c.Mesh); len(all) != 1 || all[0].CredentialsGone {
		t.Fatalf("asked for: %+v", all)
	}
	c.Eventually(time.Minute, "it is said that the runner is away", func() bool {
		return strings.Contains(provisions(c.Mesh)[0].Waits, "until the runner is connected")
	})
	c.Leader().Kill()
	c.Eventually(time.Minute, "the next leader says that the credentials are gone", func() bool {
		out, _, code := c.Try("runner", "provision", "r1", "--list")
		return code == 0 && strings.Contains(out, "credentials are gone")
	})
	c.StartRunner()
	c.Eventually(time.Minute, "the runner is back", func() bool {
		out, _, code := c.Try("runner", "list")
		return code == 0 && strings.Contains(out, "online")
	})
	if _, err := os.Stat(program + ".calls"); err == nil || provisions(c.Mesh)[0].State != fleet.ProvisionQueued {
		t.Error("it was begun without them")
	}
	id := provisions(c.Mesh)[0].ID
	c.Run(append(ask, "--wait")...)
	if all := provisions(c.Mesh); len(all) != 1 || all[0].ID != id || all[0].State != fleet.ProvisionSucceeded {
		t.Errorf("asked for again: %+v", all)
	}
}
