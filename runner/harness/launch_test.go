package harness

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

const testThread = "01a22b58-e674-74f2-906d-0f431ca24300"

func testRequest(t *testing.T) Request {
	return Request{Path: "/opt/cli", Dir: "/work tree", Prompt: "-rf do\nthe thing", Permissions: fleet.PermWorkspace, ScratchDir: t.TempDir(),
		Self: "/opt/tugline", Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=/home/dev", "X_API_KEY=secret-value"}}
}

func TestLaunchArgv(t *testing.T) {
	codexHead := []string{"/opt/cli", "exec", "--sandbox"}
	codexMiddle := []string{"--skip-git-repo-check", "-C", "/work tree", "-c", "analytics.enabled=false", "-c", "features.plugins=false",
		"-c", "check_for_update_on_startup=false", "-c", `shell_environment_policy.exclude=["*KEY*","*TOKEN*","*SECRET*","*PASSWORD*"]`}
	claudeHead := []string{"/opt/cli", "-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages", "--permission-mode"}
	drive := []string{"/opt/tugline", "drive", "opencode", "--program", "/opt/cli", "--dir", "/work tree"}
	for _, c := range []struct {
		cli    string
		change func(*Request)
		want   []string
	}{
		{"codex", func(r *Request) { r.Permissions = fleet.PermRead; r.ExtraWritable = []string{"/w"} },
			slices.Concat(codexHead, []string{"read-only"}, codexMiddle, []string{"--json", "-"})},
		{"codex", func(r *Request) { r.Model = "gpt-5.5"; r.ExtraWritable = []string{"/w"} },
			slices.Concat(codexHead, []string{"workspace-write"}, codexMiddle, []string{"--add-dir", "/w", "--json", "-m", "gpt-5.5", "-"})},
		{"codex", func(r *Request) { r.Permissions = fleet.PermFull; r.ResumeID = testThread; r.Model = "m" },
			slices.Concat(codexHead, []string{"danger-full-access"}, codexMiddle, []string{"resume", "--json", "-m", "m", testThread, "-"})},
		{"claude", func(r *Request) { r.Permissions = fleet.PermRead }, slices.Concat(claudeHead, []string{"plan"})},
		{"claude", func(r *Request) {
			r.ResumeID = testThread
			r.Model = "claude-opus-4-8[1m]"
			r.ExtraWritable = []string{"/w"}
		},
			slices.Concat(claudeHead, []string{"acceptEdits", "--allowedTools=" + claudeTools, "--add-dir=/w", "--model", "claude-opus-4-8[1m]", "--resume", testThread})},
		{"claude", func(r *Request) { r.Permissions = fleet.PermFull }, slices.Concat(claudeHead, []string{"bypassPermissions"})},
		{"opencode", func(r *Request) {}, drive},
		{"opencode", func(r *Request) {
			r.Permissions, r.Model, r.ResumeID = fleet.PermFull, "fake/fake-model", "ses_dd4968b4effehRe5hKTWm59e95"
		}, slices.Concat(drive, []string{"--model", "fake/fake-model", "--session", "ses_dd4968b4effehRe5hKTWm59e95", "--approve-all"})},
		{"exec", func(r *Request) { r.Argv = []string{"sh", "-c", "true"} }, []string{"sh", "-c", "true"}},
	} {
		h, _ := Lookup(c.cli)
		r := testRequest(t)
		c.change(&r)
		l, err := h.Launch(r)
		if err != nil {
			t.Errorf("%s: %v", c.cli, err)
			continue
		}
		if diff := cmp.Diff(c.want, l.Argv); diff != "" {
			t.Errorf("%s: argv differs (-want +got):\n%s", c.cli, diff)
		}
		for _, a := range l.Argv {
			if strings.Contains(a, "the thing") || strings.Contains(a, "secret-value") {
				t.Errorf("%s: argv holds the prompt or a key: %q", c.cli, a)
			}
		}
		if c.cli != "exec" && string(l.Stdin) != r.Prompt {
			t.Errorf("%s: stdin %q, want the prompt", c.cli, l.Stdin)
		}
		if l.StopSignal != "INT" && l.StopSignal != "TERM" {
			t.Errorf("%s: stop signal %q", c.cli, l.StopSignal)
		}
	}
}

func TestLaunchRefusals(t *testing.T) {
	for _, c := range []struct {
		cli    string
		change func(*Request)
		want   fleet.Code
	}{
		{"codex", func(r *Request) { r.ResumeID = "my-thread" }, fleet.BadRequest},
		{"codex", func(r *Request) { r.ResumeID = "--last" }, fleet.BadRequest},
		{"claude", func(r *Request) { r.ResumeID = "01a22b58e67474f2906d0f431ca24300" }, fleet.BadRequest},
		{"opencode", func(r *Request) { r.ResumeID = testThread }, fleet.BadRequest},
		{"codex", func(r *Request) { r.Path = "" }, fleet.HarnessMissing},
		{"codex", func(r *Request) { r.Path = "codex" }, fleet.BadRequest},
		{"codex", func(r *Request) { r.Dir = "relative" }, fleet.BadRequest},
		{"codex", func(r *Request) { r.Model = "--oss" }, fleet.BadRequest},
		{"codex", func(r *Request) { r.Permissions = "" }, fleet.BadRequest},
		{"codex", func(r *Request) { r.ExtraWritable = []string{"relative"} }, fleet.BadRequest},
		{"claude", func(r *Request) { r.Prompt = " \n" }, fleet.BadRequest},
		{"claude", func(r *Request) { r.Prompt = strings.Repeat("x", fleet.MaxPrompt+1) }, fleet.TooLarge},
		{"opencode", func(r *Request) { r.Model = "fake-model" }, fleet.BadRequest},
		{"opencode", func(r *Request) { r.Self = "" }, fleet.BadRequest},
		{"opencode", func(r *Request) { r.Env = append(r.Env, "OPENCODE_CONFIG_CONTENT=[") }, fleet.BadRequest},
		{"exec", func(r *Request) {}, fleet.BadRequest},
		{"exec", func(r *Request) { r.Argv = []string{"a\x00b"} }, fleet.BadRequest},
	} {
		h, _ := Lookup(c.cli)
		r := testRequest(t)
		c.change(&r)
		if _, err := h.Launch(r); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %s", c.cli, err, c.want)
		}
	}
}

func TestLaunchEnv(t *testing.T) {
	r := testRequest(t)
	r.Permissions, r.AsRoot = fleet.PermFull, true
	l, err := claudeHarness.Launch(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"IS_SANDBOX=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_MAX_RETRIES=5"} {
		if !slices.Contains(l.Env, want) {
			t.Errorf("env %v lacks %s", l.Env, want)
		}
	}
	if len(l.Notes) == 0 {
		t.Error("IS_SANDBOX=1 is set without a note")
	}
	r.Permissions = fleet.PermWorkspace
	r.Env = append(r.Env, "CLAUDE_CODE_MAX_RETRIES=1", "TMPDIR=/nonexistent/tmp")
	if l, err = claudeHarness.Launch(r); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(l.Env, "IS_SANDBOX=1") || slices.Contains(l.Env, "CLAUDE_CODE_MAX_RETRIES=5") {
		t.Errorf("env %v says too much", l.Env)
	}
	if !slices.Contains(l.Env, "TMPDIR="+r.ScratchDir) {
		t.Errorf("env %v keeps a TMPDIR that does not exist", l.Env)
	}
}

func TestOpencodeSettings(t *testing.T) {
	r := testRequest(t)
	r.Env = append(r.Env, `OPENCODE_CONFIG_CONTENT={"model":"a/b","permission":{"webfetch":"ask"},"autoupdate":true}`)
	r.ScratchDir = "/scratch"
	r.ExtraWritable = []string{"/more/"}
	for perm, want := range map[fleet.Permissions]string{
		fleet.PermRead:      `{"bash":"deny","edit":"deny","external_directory":"deny","webfetch":"ask"}`,
		fleet.PermWorkspace: `{"external_directory":{"*":"deny","/more/**":"allow","/scratch/**":"allow","/tmp/**":"allow"},"webfetch":"ask"}`,
		fleet.PermFull:      `{"bash":"allow","edit":"allow","external_directory":"allow","webfetch":"allow"}`,
	} {
		r.Permissions = perm
		text, err := opencodeSettings(r)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if string(got["permission"]) != want || string(got["model"]) != `"a/b"` || string(got["autoupdate"]) != "false" || string(got["share"]) != `"disabled"` {
			t.Errorf("%s: settings %s, want permission %s", perm, text, want)
		}
	}
}

func TestHiddenPatterns(t *testing.T) {
	env := []string{"PATH=/bin", "OPENAI_API_KEY=a", "DEPLOY_TOKEN=b", "OTHER_TOKEN=c", "my_secret=d", "HOME=/h"}
	for _, c := range []struct{ keep, want []string }{
		{nil, []string{"*KEY*", "*TOKEN*", "*SECRET*", "*PASSWORD*"}},
		{[]string{"PATH"}, []string{"*KEY*", "*TOKEN*", "*SECRET*", "*PASSWORD*"}},
		{[]string{"DEPLOY_TOKEN"}, []string{"*KEY*", "OTHER_TOKEN", "*SECRET*", "*PASSWORD*"}},
	} {
		if diff := cmp.Diff(c.want, hiddenPatterns(env, c.keep)); diff != "" {
			t.Errorf("keep %v (-want +got):\n%s", c.keep, diff)
		}
	}
	if diff := cmp.Diff([]string{"OPENAI_API_KEY", "OTHER_TOKEN", "my_secret"}, hiddenNames(env, []string{"DEPLOY_TOKEN"})); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if got, want := tomlStrings([]string{`a"b`, "c"}), `["a\"b","c"]`; got != want {
		t.Errorf("tomlStrings = %s, want %s", got, want)
	}
}

// The script that stands for the shell, run as the CLIs run it.
func TestGuardShell(t *testing.T) {
	r := testRequest(t)
	r.ScratchDir = filepath.Join(t.TempDir(), "it's a dir")
	r.Env = append(r.Env, "DEPLOY_TOKEN=kept", "BAD-KEY=x", "SERVER_PW=p")
	r.KeepEnv = []string{"DEPLOY_TOKEN"}
	shell, note, err := guardShell(r, "SERVER_PW")
	if err != nil || note != "" || filepath.Base(shell) != "bash" {
		t.Fatalf("shell %q, note %q, error %v", shell, note, err)
	}
	res, err := process.Run(t.Context(), process.Cmd{Argv: []string{shell, "-c", `echo "[$X_API_KEY][$DEPLOY_TOKEN][$SERVER_PW][$1]"; exit 3`, "name", "a b"}, Env: r.Env})
	var exit *process.ExitError
	if !errors.As(err, &exit) || exit.ExitCode != 3 || string(res.Stdout) != "[][kept][][a b]\n" {
		t.Errorf("output %q, error %v", res.Stdout, err)
	}
	r.ScratchDir = ""
	if shell, note, err := guardShell(r); shell != "" || note == "" || err != nil {
		t.Errorf("without a scratch directory: shell %q, note %q, error %v", shell, note, err)
	}
}

func TestSessionModel(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, "[x]", "sessions", "2026", "11", "30")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lines := `{"type":"session_meta","payload":{"model":"no"}}` + "\n" + `{"type":"turn_context","payload":{"model":"first"}}` + "\nbroken \"turn_context\"\n" +
		`{"type":"turn_context","payload":{"model":"second"}}` + "\n" + `{"type":"event_msg","payload":{"text":"\"turn_context\"","model":"no"}}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "rollout-2026-11-30T07-26-16-"+testThread+".jsonl"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"CODEX_HOME=" + filepath.Join(home, "[x]")}
	if got := codexHarness.SessionModel(env, testThread); got != "second" {
		t.Errorf("model %q, want second", got)
	}
	for _, id := range []string{"*", "11111111-2222-3333-4444-555555555555", ""} {
		if got := codexHarness.SessionModel(env, id); got != "" {
			t.Errorf("session %q has the model %q", id, got)
		}
	}
	if got := claudeHarness.SessionModel(env, testThread); got != "" {
		t.Errorf("claude tells %q", got)
	}
}

func TestNamesAndCapabilities(t *testing.T) {
	if diff := cmp.Diff([]string{"exec", "codex", "claude", "opencode"}, Names()); diff != "" {
		t.Error(diff)
	}
	if _, ok := Lookup("native"); ok {
		t.Error("an unknown name is found")
	}
	for _, n := range Names() {
		h, ok := Lookup(n)
		if !ok || h.Name != n || h.Title == "" || h.Can(CapResume) != (n != "exec") || h.Can("flying") {
			t.Errorf("entry of %s: %+v", n, h)
		}
	}
}
