package gate

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

var update = flag.Bool("update", false, "write the golden files anew")

var exits = []struct {
	name string
	exit *fleet.Exit
}{
	{"no record", nil},
	{"code 0", &fleet.Exit{Reason: "exited"}},
	{"code 3", &fleet.Exit{Reason: "exited", Code: 3}},
	{"signal", &fleet.Exit{Reason: "exited", Code: -1, Signal: "KILL"}},
	{"timeout", &fleet.Exit{Reason: "timeout"}},
	{"idle timeout", &fleet.Exit{Reason: "idle_timeout"}},
	{"first response", &fleet.Exit{Reason: "first_response_timeout"}},
	{"stopped", &fleet.Exit{Reason: "stopped"}},
	{"start failed", &fleet.Exit{Reason: "start_failed", Detail: "no such file"}},
	{"novel reason", &fleet.Exit{Reason: "evaporated"}},
}

var shapes = []struct {
	name string
	e    *fleet.Evidence
}{
	{"none", nil},
	{"nothing new", &fleet.Evidence{Base: "b", Tip: "b"}},
	{"closure note", &fleet.Evidence{Base: "b", Tip: "b", Closure: "already fixed"}},
	{"rescued changes", &fleet.Evidence{Base: "b", Tip: "b", RescueRef: "refs/tugline/rescue"}},
	{"closure, rescued", &fleet.Evidence{Base: "b", Tip: "b", Closure: "already fixed", RescueRef: "refs/tugline/rescue"}},
	{"no repository", &fleet.Evidence{NoRepo: true}},
	{"commits, checked", &fleet.Evidence{Base: "b", Tip: "t", CommitCount: 1, Descends: true, BundleChecked: true}},
	{"commits, missing", &fleet.Evidence{Base: "b", Tip: "t", CommitCount: 2, Descends: true}},
	{"commits, bad bundle", &fleet.Evidence{Base: "b", Tip: "t", CommitCount: 2, Descends: true, BundleError: "another base"}},
	{"commits, astray", &fleet.Evidence{Base: "b", Tip: "t", CommitCount: 2, BundleChecked: true}},
	{"commits and closure", &fleet.Evidence{Base: "b", Tip: "t", CommitCount: 2, Descends: true, BundleChecked: true, Closure: "already fixed"}},
}

// TestEveryCase judges every way to end, with every class of failure and every
// shape of evidence. The whole table is in testdata/verdicts.txt, one letter a
// decision; what follows holds it against what must be true of any verdict.
func TestEveryCase(t *testing.T) {
	var out bytes.Buffer
	fmt.Fprintln(&out, "A accept   R reject   ? ask   - unknown")
	for i, s := range shapes {
		fmt.Fprintf(&out, "%c %s\n", 'a'+i, s.name)
	}
	classes := append([]fleet.FailureClass{""}, fleet.Classes()...)
	for _, kind := range []fleet.Kind{fleet.KindExec, fleet.KindAgent} {
		for _, x := range exits {
			lines := map[string][]string{}
			var order []string
			for _, class := range classes {
				line := ""
				for _, s := range shapes {
					spec := fleet.Spec{Kind: kind, Repo: &fleet.Repo{URL: "https://git.example.com/x.git"}}
					a := &fleet.Attempt{Exit: x.exit, Failure: class, Evidence: s.e}
					v := Judge(spec, a)
					line += map[fleet.Decision]string{fleet.Accept: "A", fleet.Reject: "R", fleet.Ask: "?", fleet.Unknown: "-"}[v.Decision]
					if err := wrong(spec, a, v); err != "" {
						t.Errorf("%s, %s, class %q, %s: %s: %+v", kind, x.name, class, s.name, err, v)
					}
					if again := Judge(spec, a); !reflect.DeepEqual(v, again) {
						t.Errorf("judged twice: %+v and %+v", v, again)
					}
				}
				if lines[line] == nil {
					order = append(order, line)
				}
				name := string(class)
				if name == "" {
					name = "(none)"
				}
				lines[line] = append(lines[line], name)
			}
			for _, line := range order {
				who := strings.Join(lines[line], " ")
				if len(lines[line]) == len(classes) {
					who = "any class"
				}
				fmt.Fprintf(&out, "%-5s  %-14s  %s  %s\n", kind, x.name, line, who)
			}
		}
	}
	path := filepath.Join("testdata", "verdicts.txt")
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", path, d)
	}
}

// wrong says what a verdict must never be.
func wrong(spec fleet.Spec, a *fleet.Attempt, v fleet.Verdict) string {
	e := a.Evidence
	commits := e != nil && e.CommitCount > 0
	switch {
	case v.By != By || len(v.Reasons) != 1 || v.Reasons[0] == "":
		return "a verdict needs a name and a reason"
	case strings.Contains(v.Reasons[0], "%!"):
		return "the reason is badly made"
	case a.Exit == nil:
		if v.Decision != fleet.Unknown {
			return "nothing is known without a record of the end"
		}
		return ""
	case v.Decision == fleet.Accept && a.Exit.Reason != "exited":
		return "accepted although it did not end by itself"
	case v.Decision == fleet.Accept && commits && (!e.Descends || !e.BundleChecked || e.BundleError != ""):
		return "accepted commits that were not proven"
	case v.Decision == fleet.Accept && spec.Kind == fleet.KindExec && (a.Exit.Code != 0 || a.Exit.Signal != ""):
		return "accepted a command that failed"
	case v.Decision == fleet.Accept && spec.Kind == fleet.KindAgent && (a.Failure != fleet.ClassOK || !commits && (e == nil || e.Closure == "" || e.RescueRef != "")):
		return "accepted an agent's word without evidence"
	case v.Decision == fleet.Unknown && e != nil && !commits:
		return "waits for evidence although nothing is missing"
	}
	return ""
}

// TestWords pins what people read.
func TestWords(t *testing.T) {
	agent, exec := fleet.Spec{Kind: fleet.KindAgent, Repo: &fleet.Repo{}}, fleet.Spec{Kind: fleet.KindExec}
	ok := &fleet.Exit{Reason: "exited"}
	for _, c := range []struct {
		spec fleet.Spec
		a    fleet.Attempt
		want string
	}{
		{exec, fleet.Attempt{Exit: ok}, "accept: exit code 0"},
		{exec, fleet.Attempt{Exit: &fleet.Exit{Reason: "exited", Code: 2}}, "reject: exit code 2"},
		{exec, fleet.Attempt{Exit: &fleet.Exit{Signal: "SEGV"}}, "reject: ended by signal SEGV"},
		{exec, fleet.Attempt{Exit: ok, Evidence: &fleet.Evidence{CommitCount: 1, Descends: true, BundleChecked: true}}, "accept: exit code 0, 1 new commit"},
		{exec, fleet.Attempt{Exit: &fleet.Exit{Reason: "idle_timeout"}}, "reject: ended by its idle limit: no output for too long"},
		{exec, fleet.Attempt{Exit: &fleet.Exit{Reason: "start_failed", Detail: "no such file"}}, "reject: could not be started: no such file"},
		{agent, fleet.Attempt{}, "unknown: evidence incomplete: no record of how the attempt ended"},
		{agent, fleet.Attempt{Exit: ok, Failure: fleet.ClassOK, Evidence: &fleet.Evidence{CommitCount: 3, Descends: true, BundleChecked: true}}, "accept: 3 new commits verified"},
		{agent, fleet.Attempt{Exit: ok, Failure: fleet.ClassOK, Evidence: &fleet.Evidence{CommitCount: 3, Base: "b0"}}, "ask: the new commits do not descend from the base commit b0"},
		{agent, fleet.Attempt{Exit: ok, Failure: fleet.ClassOK, Evidence: &fleet.Evidence{Closure: "done in 12"}}, "accept: nothing to change, says the run: done in 12"},
		{agent, fleet.Attempt{Exit: ok, Failure: fleet.ClassOK, Evidence: &fleet.Evidence{RescueRef: "refs/x"}}, "ask: changes were left uncommitted and saved under refs/x"},
		{agent, fleet.Attempt{Exit: ok, Failure: fleet.ClassOK, Evidence: &fleet.Evidence{}}, "ask: no new commit, and no note why nothing needed to change"},
		{fleet.Spec{Kind: fleet.KindAgent}, fleet.Attempt{Exit: ok, Failure: fleet.ClassOK, Evidence: &fleet.Evidence{}}, "ask: there is no repository, so nothing but the answer shows what was done"},
		{agent, fleet.Attempt{Exit: &fleet.Exit{Code: 1}, Failure: fleet.ClassUnknown}, "ask: the agent ended without saying how: exit code 1"},
		{agent, fleet.Attempt{Exit: ok, Failure: fleet.ClassAuth, Detail: "sign in"}, "reject: auth: sign in"},
		{agent, fleet.Attempt{Exit: ok, Failure: fleet.ClassQuotaExhausted, Detail: "no credits", Acted: true, SessionID: "s"}, "reject: quota_exhausted: no credits"},
		{agent, fleet.Attempt{Exit: ok, Failure: fleet.ClassQuotaExhausted, Detail: "no credits", Acted: true}, "reject: quota_exhausted: no credits; not tried again: a tool ran already, and there is no session to go on with"},
		{agent, fleet.Attempt{Exit: ok, Failure: fleet.ClassTimeout, Detail: "too long", Acted: true}, "reject: timeout: too long"},
		{agent, fleet.Attempt{Exit: ok, Failure: fleet.ClassTaskFailed, Detail: "tests fail"}, "reject: the agent reports failure: tests fail"},
	} {
		v := Judge(c.spec, &c.a)
		if got := string(v.Decision) + ": " + v.Reasons[0]; got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
