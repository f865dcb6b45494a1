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
	{"turns", fakemodel.Scenario{About: "four turns of one session", Steps: turns}},
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
