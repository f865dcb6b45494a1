package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

func TestPermissionsInEffectAreTheLesser(t *testing.T) {
	levels := []fleet.Permissions{fleet.PermRead, fleet.PermWorkspace, fleet.PermFull}
	for _, ceiling := range levels {
		for _, asked := range append(levels, "") {
			got, d := Policy{Permissions: ceiling, Push: "runner"}.permit(fleet.Spec{Kind: fleet.KindAgent, Harness: "codex", Permissions: asked}, "")
			want := asked
			if asked == "" {
				want = fleet.PermWorkspace
			}
			if want.Rank() > ceiling.Rank() {
				want = ceiling
			}
			if d != nil || got != want {
				t.Errorf("asked %q under %s: %q, %v; want %s", asked, ceiling, got, d, want)
			}
		}
	}
	if _, d := (Policy{Permissions: fleet.PermFull}).permit(fleet.Spec{Harness: "codex", Permissions: "root"}, ""); d == nil {
		t.Error("unknown permissions were taken")
	}
	if _, d := (Policy{Permissions: fleet.PermRead}).permit(fleet.Spec{Harness: "exec"}, ""); d == nil || d.code != fleet.OwnerPolicy {
		t.Errorf("a command under a ceiling of reading: %v, want a refusal", d)
	}
}

func TestEnvironment(t *testing.T) {
	own := []string{"PATH=/bin", "HOME=/h", "LC_ALL=C", "AWS_SECRET_KEY=abcdefghij", "OPENAI_API_KEY=sk-12345678", "FOO_A=1", "SSH_AUTH_SOCK=/s", "https_proxy=p", "junk", "GIT_SSL_CAINFO=/ca.pem", "GIT_SSL_CAPATH=/ca", "GIT_DIR=/d"}
	spec := fleet.Spec{Harness: "codex", Env: map[string]string{"PATH": "/job", "A_TOKEN": "tok-12345678"}, Secrets: []string{"PIN", "S"}}
	secrets := map[string]string{"PIN": "12345", "S": "x", "OTHER": "never-given"}
	e := buildEnv(own, Policy{EnvNames: []string{"FOO_?"}, Push: "runner"}, spec, secrets, map[string]string{"TUGLINE_JOB_ID": "j"})
	want := []string{"A_TOKEN=tok-12345678", "FOO_A=1", "GIT_SSL_CAINFO=/ca.pem", "GIT_SSL_CAPATH=/ca", "HOME=/h", "LC_ALL=C", "OPENAI_API_KEY=sk-12345678", "PATH=/job", "PIN=12345", "S=x", "TUGLINE_JOB_ID=j", "https_proxy=p"}
	if d := cmp.Diff(want, e.vars); d != "" {
		t.Errorf("environment (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"12345", "sk-12345678", "tok-12345678"}, e.hidden); d != "" {
		t.Errorf("hidden (-want +got):\n%s", d)
	}
	if a := buildEnv(own, Policy{Push: "agent"}, spec, secrets, nil); !slices.Contains(a.vars, "SSH_AUTH_SOCK=/s") {
		t.Error("an agent that may push does not see the ssh agent")
	}
	marks := map[string]string{"GIT_CONFIG_KEY_0": "credential.helper", "TUGLINE_KEYHOLE": "credential.helper"}
	if a := buildEnv(own, Policy{Push: "agent"}, spec, secrets, marks); !slices.Equal(a.hidden, e.hidden) {
		t.Errorf("with the runner's own settings %q is hidden, want %q", a.hidden, e.hidden)
	}
	w := e.with([]string{"PATH=/cli", "NEW_KEY=0123456789"})
	if !slices.Contains(w.vars, "PATH=/cli") || slices.Contains(w.vars, "PATH=/job") || !slices.Contains(w.hidden, "0123456789") {
		t.Errorf("with the harness's settings: %q hides %q", w.vars, w.hidden)
	}
}

// What somebody can mend outside of this runner is tried again after a while.
func TestDeclinesSayWhenToComeBack(t *testing.T) {
	for code, want := range map[fleet.Code]time.Duration{
		fleet.RepoAuth: 2 * time.Minute, fleet.RepoMissing: 2 * time.Minute,
		fleet.RepoUnreachable: 30 * time.Second, fleet.Storage: time.Minute, fleet.HarnessMissing: 0,
	} {
		if d := asDecline(fmt.Errorf("prepare: %w", code)); d.code != code || d.after != want || d.block {
			t.Errorf("%s: %+v, want a new try after %s", code, d, want)
		}
	}
	for _, code := range []fleet.Code{fleet.InputMissing, fleet.RefMissing} {
		if d := asDecline(code); !d.block || d.after != 0 {
			t.Errorf("%s: %+v, want the job blocked", code, d)
		}
	}
}

func TestPausesGrow(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 30 * time.Second, 1: 30 * time.Second, 2: time.Minute, 5: 8 * time.Minute, 6: 10 * time.Minute, 1 << 30: 10 * time.Minute} {
		if got := grown(awayAfter, n); got != want {
			t.Errorf("after attempt %d: %s, want %s", n, got, want)
		}
	}
	if got := grown(0, 9); got != 0 {
		t.Errorf("where nothing but a change of facts helps: %s", got)
	}
	const mostAttempts = 200 // of a turn, at the hub
	total := time.Duration(0)
	for n := range mostAttempts {
		total += grown(awayAfter, n+1)
	}
	if total < 24*time.Hour {
		t.Errorf("a server that is down for %s has used up a turn's attempts", total)
	}
}

func TestCredentialsOfOthersAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "git-credentials.yaml")
	if all, err := LoadCredentials(file); err != nil || all != nil {
		t.Errorf("a missing file: %v, %v", all, err)
	}
	if err := os.WriteFile(file, []byte("h.example: {username: u, password: p}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadCredentials(file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("mode 0644: %v, want the mend", err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := LoadCredentials(file); err != nil || all["h.example"].Password != "p" {
		t.Errorf("%v, %v", all, err)
	}
	t.Setenv(credentialFileVar, file)
	var out strings.Builder
	if code := GitCredential("get", strings.NewReader("protocol=https\nhost=h.example\n\n"), &out); code != 0 || out.String() != "username=u\npassword=p\n" {
		t.Errorf("helper gave %d %q", code, out.String())
	}
	out.Reset()
	if code := GitCredential("get", strings.NewReader("protocol=https\nhost=other.example\n\n"), &out); out.String() != "" {
		t.Errorf("helper gave %d %q for another host", code, out.String())
	}
	if code := GitCredential("store", strings.NewReader("x"), &out); code != 0 || out.String() != "" {
		t.Error("the helper stores something")
	}
}

func TestPatchesAreMaskedInPieces(t *testing.T) {
	m := newMask([]string{"secret-value"})
	in := strings.Repeat("x", fleet.MaxFramePayload-5) + "secret-value" + strings.Repeat("y", 70000) + "secret-val"
	var out strings.Builder
	if err := m.copy(&out, strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(in, "secret-value", "************", 1); out.String() != want {
		t.Error("a value over the border of two reads is not masked, or more than it is")
	}
}
