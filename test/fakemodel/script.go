package fakemodel

import (
	"maps"
	"slices"
	"time"
)

// Names lists the built-in scenarios, sorted.
func Names() []string { return slices.Sorted(maps.Keys(builtin())) }

// Builtin gives a built-in scenario by its name.
func Builtin(name string) (Scenario, bool) {
	sc, ok := builtin()[name]
	return sc, ok
}

// The file that the successful scripts write.
const (
	HelloPath = "hello.txt"
	HelloText = "hello from the agent\n"
)

// StartedPath is the file that the scripts with a long command create when the
// command runs, in the folder that the client works in.
const StartedPath = "started.flag"

// RefusalText is a refusal that comes as an ordinary answer.
const RefusalText = "You've hit your usage limit. Upgrade your plan to continue."

func say(words string) Step { return Step{Items: []Item{{Say: words}}} }

func run1(line string) Step { return Step{Items: []Item{{Run: line}}} }

// hello is the task that goes well: think, speak, write a file, look at it, end.
func hello() []Step {
	return []Step{
		{Items: []Item{
			{Think: "A file is wanted. I write it and look at it."},
			{Say: "I will create hello.txt."},
			{Write: &File{Path: HelloPath, Text: HelloText}},
		}},
		run1("cat " + HelloPath + " && ls"),
		say("Done: hello.txt is there."),
	}
}

// after puts a step before the task that goes well.
func after(st Step) []Step { return append([]Step{st}, hello()...) }

// always repeats a fault for every request of the run, side requests included.
func always(st Step) []Step {
	st.Repeat, st.Everywhere = -1, true
	return []Step{st}
}

// endless is a step that a client can only be stopped in.
func endless(line string) []Step {
	return []Step{{Items: []Item{{Say: "Starting a long command."}, {Run: line, Limit: 10 * time.Minute}}, Repeat: -1}}
}

func builtin() map[string]Scenario {
	slow := hello()
	slow[0].First, slow[2].Pace = 3*time.Second, 100*time.Millisecond
	mid := hello()[0]
	mid.Fault = &Fault{Disconnect: true}
	cutOnce := mid
	mid.Repeat = -1
	short := hello()[0]
	short.Fault = &Fault{Truncate: true, After: 5}
	// In Anthropic Messages this is just behind the thought.
	between := hello()[0]
	between.Fault = &Fault{Truncate: true, After: 8}

	return map[string]Scenario{
		"success":   {"writes hello.txt, looks at it, ends", hello()},
		"text-only": {"answers in words and changes nothing", []Step{say("This needs no change."), say("I still know my first answer."), say("And the second.")}},
		"commit": {"writes a file and commits it itself", []Step{
			hello()[0],
			run1("git add -A && git -c user.name=Agent -c user.email=agent@localhost commit -q -m 'Add hello.txt' && git log --oneline -1"),
			say("Done: hello.txt is committed."),
		}},
		"command-fails": {"a command ends with status 3; the agent says so and ends", []Step{
			run1("echo to-stdout; echo to-stderr >&2; exit 3"),
			say("The command failed with exit status 3."),
		}},
		"environment": {"prints the names of the variables that a shell command sees", []Step{
			run1("env | cut -d= -f1 | sort | tr '\\n' ' '"),
			say("Those are the names."),
		}},
		"resume": {"two turns; the second must carry the first one's history", []Step{
			{Items: []Item{{Say: "I keep the word heron-{nonce} in mind."}, {Write: &File{Path: "first.txt", Text: "written in turn one\n"}}}},
			say("Turn one is done: heron-{nonce}."),
			{Items: []Item{{Write: &File{Path: "second.txt", Text: "written in turn two\n"}}},
				Expect: []string{"I keep the word heron-{nonce} in mind.", "Turn one is done: heron-{nonce}.", "written in turn one"}},
			say("Turn two is done."),
		}},

		Prompted: {"what the prompt names; without a name it says so", []Step{{Items: []Item{{Say: "No script is named."}}, Repeat: -1}}},

		"rate-limit":      {"429 with retry-after 1, always", always(rateLimit("1"))},
		"rate-limit-long": {"429 with retry-after 3600, always", always(rateLimit("3600"))},
		"rate-limit-once": {"429 with retry-after 1, then success", after(rateLimit("1"))},
		"quota":           {"no quota or credit left", always(noQuota())},
		"usage-limit":     {"the limit of a paid plan is used up until a given time", always(usageLimit("plus", time.Unix(LimitResetsAt, 0)))},
		"usage-limit-free": {"the limit of a free plan is used up",
			always(usageLimit("free", time.Unix(LimitResetsAt, 0)))},
		"upgrade-plan": {"403 that says to upgrade the plan", always(upgradePlan())},
		"refusal-text": {"a refusal as an ordinary answer: the client exits 0",
			[]Step{{Items: []Item{{Say: RefusalText}}, Repeat: -1}}},
		"model-missing":     {"404: the model does not exist", always(modelMissing())},
		"context-overflow":  {"the conversation is too long for the model", always(contextOverflow())},
		"overloaded":        {"503 or 529, always", always(overloaded())},
		"overloaded-once":   {"503 or 529, then success", after(overloaded())},
		"server-error-once": {"500, then success", after(serverError())},
		"stream-error-once": {"an error inside a stream, then success", after(streamError())},
		"disconnect":        {"cuts every stream in the middle", []Step{mid}},
		"disconnect-once":   {"cuts one stream in the middle, then success", after(cutOnce)},
		"truncate-once":     {"ends one stream early but cleanly, then success", after(short)},
		"truncate-between": {"ends one stream early between two parts: Claude Code takes that for a whole, empty answer",
			after(between)},

		"hang": {"opens the stream and says nothing more", []Step{{Items: []Item{{Say: "unheard"}}, Fault: &Fault{Hang: true}, Repeat: -1}}},
		"slow": {"a first word after three seconds, an end word by word", slow},
		"long-command": {"a command of ten minutes with a child, for cancelling",
			endless("(exec -a tugline-child-{nonce} sleep 600) & echo started; touch " + StartedPath + "; exec -a tugline-{nonce} sleep 600")},
		"stubborn-command": {"a command that ignores signals and has a child in a session of its own",
			endless("trap '' INT TERM HUP; setsid bash -c 'exec -a tugline-child-{nonce} sleep 600' & echo started; touch " + StartedPath + "; while :; do sleep 5; done")},
		"daemon": {"success that leaves a daemon behind", []Step{
			hello()[0],
			run1("setsid nohup bash -c 'exec -a tugline-child-{nonce} sleep 600' >/dev/null 2>&1 & echo left"),
			say("Done: hello.txt is there, and a daemon runs."),
		}},
	}
}
