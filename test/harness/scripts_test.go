//go:build harness

package harness_test

import (
	"time"

	"tugline.dev/tugline/test/fakemodel"
)

// ownScripts are those that only whole-path tests need.
var ownScripts = []struct {
	name   string
	script fakemodel.Scenario
}{
	{"closure", fakemodel.Scenario{About: "finds nothing to change and says so in the closure note", Steps: []fakemodel.Step{
		{Items: []fakemodel.Item{{Run: `echo "greet.sh greets already" > "$TUGLINE_CLOSURE_FILE"`}}},
		{Items: []fakemodel.Item{{Say: "Nothing needs to change."}}},
	}}},
	{"interrupted", fakemodel.Scenario{About: "a command of ten minutes, to be cancelled; the next turn knows of it", Steps: []fakemodel.Step{
		{Items: []fakemodel.Item{{Say: "Starting a long command."}, {Limit: 10 * time.Minute,
			Run: "(exec -a tugline-child-{nonce} sleep 600) & touch " + fakemodel.StartedPath + "; exec -a tugline-{nonce} sleep 600"}}},
		{Items: []fakemodel.Item{{Write: &fakemodel.File{Path: "second.txt", Text: "written in turn two\n"}}},
			Expect: []string{"first prompt", "Starting a long command.", "second prompt"}},
		{Items: []fakemodel.Item{{Say: "Taken up again."}}},
	}}},
	{"gone", fakemodel.Scenario{About: "three turns, the third without the history of the others", Steps: []fakemodel.Step{
		{Items: []fakemodel.Item{{Write: &fakemodel.File{Path: "first.txt", Text: "written in turn one\n"}}}},
		{Items: []fakemodel.Item{{Say: "Turn one is done."}}},
		{Items: []fakemodel.Item{{Write: &fakemodel.File{Path: "second.txt", Text: "written in turn two\n"}}}, Expect: []string{"Turn one is done.", "second prompt"}},
		{Items: []fakemodel.Item{{Say: "Turn two is done."}}},
		{Items: []fakemodel.Item{{Write: &fakemodel.File{Path: "third.txt", Text: "written in turn three\n"}}}},
		{Items: []fakemodel.Item{{Say: "Turn three is done."}}},
	}}},
	{"limit-between", fakemodel.Scenario{About: "writes a file, then the plan's limit is reached, once; whoever goes on must know of the file", Steps: []fakemodel.Step{
		{Items: []fakemodel.Item{say("I keep the word heron-{nonce} in mind."), write("first.txt", "written before the limit\n")}},
		limitOnce(),
		{Items: []fakemodel.Item{write("second.txt", "written after the limit\n")}, Expect: []string{"heron-{nonce}", "first.txt"}},
		{Items: []fakemodel.Item{say("Both files are there.")}},
	}}},
	{"turns", fakemodel.Scenario{About: "four turns of one session", Steps: turns}},

	{"limit-soon", fakemodel.Scenario{About: "a plan that is used up for some hours", Steps: []fakemodel.Step{fakemodel.UsageLimit(limitEnds)}}},
	{"limited-one", fakemodel.Scenario{About: "one account is limited, others are not", Steps: append([]fakemodel.Step{
		forOne(refusal("rate-limit"))}, hello()...)}},
	{"chain", fakemodel.Scenario{About: "no quota for Codex, no model for Claude Code, and then success", Steps: append([]fakemodel.Step{
		forProtocol(fakemodel.Responses, refusal("quota")), forProtocol(fakemodel.Messages, refusal("model-missing"))}, hello()...)}},
	{"codex-no-quota", fakemodel.Scenario{About: "no quota for Codex, then success", Steps: append([]fakemodel.Step{
		forProtocol(fakemodel.Responses, refusal("quota"))}, hello()...)}},
	{"acted-model-codex", modelGoesAway(1)},
	{"acted-model-claude", modelGoesAway(2)}, // it asks the same model once more, without a stream
	{"acted-quota", fakemodel.Scenario{About: "a file, then no quota for ever", Steps: []fakemodel.Step{begins, refusal("quota")}}},
	{"acted-hang", fakemodel.Scenario{About: "a file, then silence", Steps: []fakemodel.Step{
		begins, {Fault: &fakemodel.Fault{Hang: true}, Items: []fakemodel.Item{say("unheard")}, Repeat: -1}}}},
	{"down-codex", downTwice(codexAsks)},
	{"down-claude", downTwice(claudeAsks)},
}

// begins is a step that does something and is remembered.
var begins = fakemodel.Step{Items: []fakemodel.Item{say("I keep the word heron-{nonce} in mind."), write("first.txt", "written first\n")}}

// How often each CLI asks a provider that fails, where a task lets it try once more.
const (
	codexAsks  = 2
	claudeAsks = 2
)

// downTwice is a provider that fails in the middle of a run, fails again, and then goes on.
func downTwice(asks int) fakemodel.Scenario {
	return fakemodel.Scenario{About: "a file, then a provider that is down for two executions", Steps: []fakemodel.Step{
		begins, refusal("overloaded", 2*asks),
		{Items: []fakemodel.Item{write("second.txt", "written after it\n")}, Expect: []string{"heron-{nonce}", "first prompt"}},
		{Items: []fakemodel.Item{say("All is done.")}},
	}}
}

// modelGoesAway is a model that is no more in the middle of a run; the next one goes on.
func modelGoesAway(asks int) fakemodel.Scenario {
	return fakemodel.Scenario{About: "a file, then the model is gone for one execution, then the rest", Steps: []fakemodel.Step{
		begins, refusal("model-missing", asks),
		{Items: []fakemodel.Item{write("second.txt", "written by the next model\n")}, Expect: []string{"heron-{nonce}", "first prompt"}},
		{Items: []fakemodel.Item{say("All is done.")}},
	}}
}

// refusal is the refusal of a built-in script, for so many requests, or for ever.
func refusal(script string, requests ...int) fakemodel.Step {
	sc, ok := fakemodel.Builtin(script)
	if !ok {
		panic("there is no script " + script)
	}
	st := sc.Steps[0]
	if len(requests) > 0 {
		st.Repeat = requests[0] - 1
	}
	return st
}

// forOne has only the account of the runner r1 meet a step.
func forOne(st fakemodel.Step) fakemodel.Step {
	st.Key = fakemodel.GoodKey
	return st
}

// forProtocol has only the clients of a protocol meet a step.
func forProtocol(p fakemodel.Protocol, st fakemodel.Step) fakemodel.Step {
	st.Protocol = p
	return st
}

func hello() []fakemodel.Step {
	sc, _ := fakemodel.Builtin("success")
	return sc.Steps
}

// turns is a script of four turns. Each must carry the history of those before, else
// the model complains. The first is held until the test releases it, so that what is
// to happen in the middle of it does.
var turns = []fakemodel.Step{
	{Items: []fakemodel.Item{say("I keep the word heron-{nonce} in mind."), write("first.txt", "written in turn one\n")}, Hold: true},
	{Items: []fakemodel.Item{say("Turn one is done.")}},
	{Items: []fakemodel.Item{write("second.txt", "written in turn two\n")}, Expect: []string{"heron-{nonce}", "Turn one is done.", "second prompt"}},
	{Items: []fakemodel.Item{say("Turn two is done.")}},
	{Items: []fakemodel.Item{write("third.txt", "written in turn three\n")}, Expect: []string{"heron-{nonce}", "Turn two is done.", "third prompt"}},
	{Items: []fakemodel.Item{say("Turn three is done.")}},
	{Items: []fakemodel.Item{write("fourth.txt", "written in turn four\n")}, Expect: []string{"heron-{nonce}", "Turn three is done.", "fourth prompt"}},
	{Items: []fakemodel.Item{say("Turn four is done.")}},
}

func write(name, text string) fakemodel.Item {
	return fakemodel.Item{Write: &fakemodel.File{Path: name, Text: text}}
}

func say(text string) fakemodel.Item { return fakemodel.Item{Say: text} }

func limitOnce() fakemodel.Step {
	s := fakemodel.UsageLimit(time.Unix(fakemodel.LimitResetsAt, 0))
	s.Repeat = 0
	return s
}
