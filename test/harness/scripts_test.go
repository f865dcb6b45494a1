//go:build harness

package harness_test

import (
	"time"

	"tugline.dev/tugline/test/fakemodel"
)

// fakeScenarios are scripts that only whole-path tests need.
var fakeScenarios = []struct {
	name   string
	script fakemodel.Scenario
}{
	{"closure", fakemodel.Scenario{About: "finds nothing to change and says so in the closure note", Steps: []fakemodel.Step{
		{Items: []fakemodel.Item{{Run: `echo "greet.sh greets already" > "$TUGLINE_CLOSURE_FILE"`}}},
		{Items: []fakemodel.Item{{Say: "Nothing needs to change."}}},
	}}},
	{"turns", fakemodel.Scenario{About: "three turns, the first slow; each carries the history of those before", Steps: []fakemodel.Step{
		{Items: []fakemodel.Item{{Say: "I keep the word heron-{nonce} in mind."}, {Write: &fakemodel.File{Path: "first.txt", Text: "written in turn one\n"}}}, Delay: 2 * time.Second},
		{Items: []fakemodel.Item{{Say: "Turn one is done."}}, Delay: time.Second},
		{Items: []fakemodel.Item{{Write: &fakemodel.File{Path: "second.txt", Text: "written in turn two\n"}}},
			Expect: []string{"heron-{nonce}", "Turn one is done.", "second prompt"}},
		{Items: []fakemodel.Item{{Say: "Turn two is done."}}},
		{Items: []fakemodel.Item{{Write: &fakemodel.File{Path: "third.txt", Text: "written in turn three\n"}}},
			Expect: []string{"heron-{nonce}", "Turn two is done.", "third prompt"}},
		{Items: []fakemodel.Item{{Say: "Turn three is done."}}},
	}}},
}
