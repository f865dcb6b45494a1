package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func TestWrongWordsAreExit2(t *testing.T) {
	s := newShell(t, "http://127.0.0.1:1") // nothing may be asked of it
	dir := t.TempDir()
	for _, c := range []struct {
		line string
		want string
	}{
		{"nope", "no command `tugline nope`"},
		{"jobs", "did you mean `tugline job`?"},
		{"frob", "no command `tugline frob`; `tugline --help`"},
		{"rnu", "did you mean `tugline run`?"},
		{"harnes", "did you mean `tugline harness`?"},
		{"conte", "did you mean `tugline context`?"},
		{"hub undrain n-1", "did you mean `tugline hub drain --back NODE`?"},
		{"job artifacts", "needs ID"},
		{"job artifacts a b c", `does not take "c"`},
		{"job nope", "no command `tugline job nope`"},
		{"job get", "needs ID"},
		{"job get a b", `does not take "b"`},
		{"job get a --nope", "unknown flag: --nope"},
		{"job list --limit 0", "from 1 to 500"},
		{"job list --limit x", "invalid argument"},
		{"job logs a -f --attempt 2", "leave out --attempt"},
		{"job follow-up a", "give one prompt"},
		{"job follow-up a b --on x", "add --fresh"},
		{"job artifacts a -o x", "needs the name"},
		{"job discard a", "add --yes"},
		{"run", "give one prompt"},
		{"run a b", "in quotes"},
		{"run a --prompt-file b", "give one prompt"},
		{"run --prompt-file /does/not/exist", "cannot read the prompt"},
		{"run a --harness exec", "tugline exec"},
		{"run a --permissions all", "none of read, workspace, full"},
		{"run a --on-lost x", "none of hold, rerun"},
		{"run a --commit x", "none of auto, never"},
		{"run a --require x", "not of the form k=v"},
		{"run a --env x=1 --env x=2", "gives x twice"},
		{"run a --timeout 10ms", "too short"},
		{"run a --timeout -3s", "too short"},
		{"run a --timeout soon", "invalid argument"},
		{"run a --ref main", "give --repo"},
		{"run a --push main", "give --repo"},
		{"run a --include-dirty", "give --repo"},
		{"run a --repo /does/not/exist", "neither a directory here nor the URL"},
		{"run a --repo https://x.test/r --include-dirty", "is a URL"},
		{"run a --repo https://x.test/r --depth -1", "below zero"},
		{"run a --repo " + dir, "not inside a git repository"},
		{"exec --repo= -- true", "--repo is empty"},
		{"exec --on= -- true", "--on is empty"},
		{"exec --secret= -- true", "--secret is empty"},
		{"run a --harness=", "--harness is empty"},
		{"run a --model=", "--model is empty"},
		{"run a --repo x --ref=", "--ref is empty"},
		{"run a --repo x --push=", "--push is empty"},
		{"run a --repo x --branch=", "--branch is empty"},
		{"job follow-up a b --model=", "--model is empty"},
		{"exec -- printf \xff", "not UTF-8 text"},
		{"exec --env A=\xff -- true", "not UTF-8 text"},
		{"run \xff", "the prompt is not UTF-8 text"},
		{"run a\x00b", "NUL"},
		{"exec", "the command is missing"},
		{"exec --nope -- b", "unknown flag"},
		{"token create", "--role is missing"},
		{"token create --role king", "none of viewer, operator, admin"},
		{"token create --role viewer --ttl 1s", "too short"},
		{"hub ticket --ttl 1s", "from 1m to 24h"},
		{"hub ticket --uses 0", "from 1 to 1000"},
		{"hub ticket --uses 1000000000", "from 1 to 1000"},
		{"hub run --listen 127.0.0.1:0 --bootstrap --tls-cert /nope --tls-key /nope --data-dir " + filepath.Join(dir, "new"), "/nope"},
		{"hub run", "needs --data-dir, and the first time --listen"},
		{"hub run --listen 127.0.0.1:0 --data-dir " + dir, "add --bootstrap"},
		{"hub run --listen 127.0.0.1:0 --bootstrap --trusted-proxy x --data-dir " + dir, "no address range"},
		{"hub run --listen 127.0.0.1:0 --bootstrap --log-level x --data-dir " + dir, "none of debug"},
		{"hub run --listen nonsense --bootstrap --data-dir " + dir, "HOST:PORT"},
		{"runner run --slots 17 --data-dir " + dir, "from 0 to 16"},
		{"runner run --ticket nonsense --data-dir " + dir, "not a ticket"},
		{"runner run --label x --data-dir " + dir, "not of the form k=v"},
		{"dev --slots 17", "from 0 to 16"},
		{"harness parse nope", `no harness "nope"`},
		{"harness parse codex --stderr /does/not/exist", "cannot read --stderr"},
		{"runner uncordon x", "did you mean `tugline runner resume`?"},
		{"runner slots x", "--automation is missing"},
		{"runner slots x --automation 9", "from 0 to 8"},
		{"runner cordon x --for 1s", "too short"},
		{"runner cordon x --reason=", "--reason is empty"},
		{"runner drain x --then cancel", "give --deadline too"},
		{"runner drain x --then stop --deadline 1m", "none of finish, cancel"},
		{"runner health x --window 2h", "none of 1h, 24h"},
		{"runner provision", "give a RUNNER"},
		{"runner provision x", "say WHAT: codex, claude, opencode"},
		{"runner provision x codex y", "give a RUNNER"},
		{"runner provision x codex --list", "go with a RUNNER alone"},
		{"runner provision x --cancel p --wait", "go with a RUNNER alone"},
		{"runner provision x codex --preserve-auth --credentials -", "give one of them"},
		{"session list", "needs RUNNER"},
		{"session show x", "needs SESSION"},
		{"session show x y --messages 51", "from 1 to 50"},
		{"session resume x", "needs SESSION"},
		{"session resume x y", "give one prompt"},
		{"session resume x y go on", "put it in quotes"},
		{"session resume x y go --harness=", "--harness is empty"},
		{"circuit reset", "needs CIRCUIT"},
		{"circuit open --reason x", "say what work"},
		{"circuit open --provider openai", "--reason is missing"},
		{"circuit open --model m --reason x", "--model needs --provider"},
		{"budget set manual", "bounds something"},
		{"budget set manual --max-runs 0", "not above zero"},
		{"budget set manual --max-runs 1 --window 1s", "too short"},
		{"alerts --limit 0", "from 1 to 1000"},
		{"run a --priority 11", "from -10 to 10"},
		{"run a --os windows", "none of linux, darwin"},
		{"run a --arch=", "--arch is empty"},
		{"run a --min-disk much", "not a size"},
		{"run a --retries 4", "from 0 to 3"},
		{"run a --max-tokens 0", "not above zero"},
		{"run a --fallback :m", "neither HARNESS nor HARNESS:MODEL"},
		{"run a --fallback exec", "is no agent"},
		{"run a --fallback claude --no-fallback", "contradict"},
		{"exec --fallback claude -- true", "unknown flag"},
		{"context use nope", `no context "nope"`},
		{"context add x --hub ftp://x", "not a URL"},
		{"context add x --hub https://u:p@x.test", "carries credentials"},
		{"version x", "unknown command"},
		{"help nope", `no command "nope"`},
	} {
		if code := s.do(strings.Fields(c.line)...); code != exitUsage {
			t.Errorf("tugline %s: exit %d, want 2\n%s", c.line, code, s.err)
		}
		if got := s.err.String(); !strings.HasPrefix(got, "tugline: ") || !strings.Contains(got, c.want) {
			t.Errorf("tugline %s says %q, want a sentence with %q", c.line, got, c.want)
		}
		if s.out.String() != "" {
			t.Errorf("tugline %s wrote %q to standard output", c.line, s.out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("a hub whose certificate cannot be used left something behind")
	}
}

func TestFlagsBecomeTheRequest(t *testing.T) {
	var got []byte
	srv := script(t, map[string]http.HandlerFunc{
		"POST /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			if k := r.Header.Get("Idempotency-Key"); k == "" {
				t.Error("the request has no Idempotency-Key")
			}
			if r.Header.Get("Authorization") != "Bearer tgl_test" {
				t.Error("the request has no token")
			}
			got = readAll(t, r)
			answer(w, http.StatusCreated, api.Job{ID: "01job"})
		},
	})
	s := newShell(t, srv.URL)
	prompt := filepath.Join(t.TempDir(), "p.md")
	if err := os.WriteFile(prompt, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		stdin string
		args  []string
		want  api.Submit
	}{
		{"everything", "", []string{"run", "--repo", "https://x.test/r.git", "--ref", "v1", "--branch", "b", "--depth", "3", "--harness", "codex", "--model", "m",
			"--on", "r1", "--require", "os=linux", "--require", "a=b=c", "--permissions", "full", "--push", "p", "--on-lost", "rerun", "--automation", "nightly",
			"--secret", "S1", "--secret", "S2", "--timeout", "90s", "--idle-timeout", "0", "--first-response-timeout", "1m", "--queue-timeout", "1h",
			"--env", "A=1,2", "--env", "B=", "--commit", "never", "--key", "k", "--detach", "do it"},
			api.Submit{Kind: fleet.KindAgent, Prompt: "do it", Repo: &fleet.Repo{URL: "https://x.test/r.git", Ref: "v1", Branch: "b", Depth: 3}, Harness: "codex", Model: "m",
				On: "r1", Require: map[string]string{"os": "linux", "a": "b=c"}, Permissions: fleet.PermFull, Push: "p", OnLost: "rerun", Automation: "nightly",
				Secrets: []string{"S1", "S2"}, Timeout: "1m30s", IdleTimeout: "0s", FirstTimeout: "1m0s", QueueTimeout: "1h0m0s",
				Env: map[string]string{"A": "1,2", "B": ""}, Commit: "never", ConcurrencyKey: "k"}},
		{"nothing", "", []string{"run", "-d", "x"}, api.Submit{Kind: fleet.KindAgent, Prompt: "x"}},
		{"prompt of a file", "", []string{"run", "-d", "-f", prompt}, api.Submit{Kind: fleet.KindAgent, Prompt: "from a file\n"}},
		{"prompt of stdin", "typed", []string{"run", "-d", "--prompt-file", "-"}, api.Submit{Kind: fleet.KindAgent, Prompt: "typed"}},
		{"ssh repository", "", []string{"run", "-d", "--repo", "git@x.test:a/b.git", "x"}, api.Submit{Kind: fleet.KindAgent, Prompt: "x", Repo: &fleet.Repo{URL: "git@x.test:a/b.git"}}},
		{"argv", "", []string{"exec", "-d", "--", "sh", "-c", "echo $A", "--json"}, api.Submit{Kind: fleet.KindExec, Argv: []string{"sh", "-c", "echo $A", "--json"}}},
		{"argv without dashes", "", []string{"exec", "-d", "make", "-j", "4"}, api.Submit{Kind: fleet.KindExec, Argv: []string{"make", "-j", "4"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.t, s.in = t, strings.NewReader(c.stdin)
			if out := s.must(c.args...); out != "01job\n" {
				t.Errorf("standard output is %q, want the id alone", out)
			}
			var in api.Submit
			if err := json.Unmarshal(got, &in); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, in); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTooMuchIsRefusedHere(t *testing.T) {
	s := newShell(t, "http://127.0.0.1:1")
	s.in = strings.NewReader(strings.Repeat("x", fleet.MaxPrompt+1))
	if code := s.do("run", "-f", "-"); code != exitUsage {
		t.Errorf("a prompt over the limit: exit %d\n%s", code, s.err)
	}
	if code := s.do("exec", "--", "echo", strings.Repeat("x", fleet.MaxArgv)); code != exitUsage {
		t.Errorf("an argv over the limit: exit %d\n%s", code, s.err)
	}
}

func TestHelpIsAsAgreed(t *testing.T) {
	s := newShell(t, "")
	for _, line := range []string{"", "run", "exec", "dev", "job", "job list", "job logs", "job follow-up", "job pull", "hub", "hub run", "hub ticket", "hub backup", "runner", "runner run", "runner install", "runner uninstall", "runner doctor", "hub doctor", "runner drain", "circuit", "circuit open", "budget", "budget set", "alerts", "runner slots", "runner cordon", "runner health", "runner workspaces", "runner disk", "runner provision", "session", "session resume", "circuit reset", "hub set", "job explain", "token create", "harness", "context"} {
		args := append(strings.Fields(line), "--help")
		if code := s.do(args...); code != 0 {
			t.Errorf("tugline %s: exit %d\n%s", line, code, s.err)
		}
		golden(t, filepath.Join("help", strings.ReplaceAll("tugline "+line, " ", "-")+".txt"), s.out.String())
	}
}

// Every command says what it is for and fits on a screen.
func TestEveryHelpIsShort(t *testing.T) {
	root := newShell(t, "").root()
	each(root, func(c *cobra.Command) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || len(c.Short) > 80 {
			t.Errorf("%s: the short text %q is missing, long, or ends with a dot", c.CommandPath(), c.Short)
		}
		var b strings.Builder
		usageText(&b, c)
		for l := range strings.Lines(c.Long + "\n" + b.String()) {
			if n := len([]rune(strings.TrimRight(l, "\n"))); n > maxWidth {
				t.Errorf("%s: a line of %d characters: %s", c.CommandPath(), n, l)
			}
		}
		if c.HasSubCommands() && c.HasParent() && c.Runnable() && c.Args == nil {
			t.Errorf("%s takes any word without a complaint", c.CommandPath())
		}
	})
}
