package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
)

func (a *app) jobExplainCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "explain ID", Aliases: []string{"why"}, Short: "Why a job is not running, runner by runner", Args: exactly("ID"), ValidArgsFunction: a.completeJobs,
		Long: `Tell why a job is not running: for every runner the first thing that stands against it, until when
if that is known, and what would change it. Into a pipe it is one line a runner, with tabs between
runner, code, end, reason and remedy.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var e api.Explanation
			if done, err := a.answer(cmd.Context(), reading(jobPath(args[0], "/explain"), nil), &e); done {
				return err
			}
			return a.explain(&e, time.Now())
		},
	})
}

// explainWidth is how wide an explanation gets at a terminal, in characters.
const explainWidth = 80

func (a *app) explain(e *api.Explanation, now time.Time) error {
	var b strings.Builder
	text := line(e.Summary)
	if a.ttyOut {
		text = byClock(text, e.Until, now)
	}
	if !strings.HasPrefix(text, string(e.State)) {
		text = words(e.State) + ": " + text
	}
	a.paragraph(&b, "", text)
	if e.Change != "" {
		a.paragraph(&b, "  ", "→ "+line(e.Change))
	}
	if e.Ahead > 0 {
		fmt.Fprintf(&b, "%s before it in the queue.\n", plural(e.Ahead, "job is", "jobs are"))
	}
	for _, r := range e.Runners {
		if !a.ttyOut {
			until := "-"
			if r.Until != nil {
				until = r.Until.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\n", line(r.Runner), first(string(r.Code), "-"), until, line(r.Detail), first(line(r.Change), "-"))
			continue
		}
		why := bold.on(a.colourOut(), line(r.Runner)) + " " + withEnd(line(r.Detail), r.Until, now)
		a.paragraph(&b, "  ", why)
		if r.Change != "" {
			a.paragraph(&b, "    ", "→ "+line(r.Change))
		}
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "and %s\n", plural(e.More, "runner more", "runners more"))
	}
	for _, n := range e.Notes {
		a.paragraph(&b, "", "note: "+line(n))
	}
	if !e.At.IsZero() && e.Age > 0 {
		fmt.Fprintf(&b, "as of change %d, and the runners' connections %s\n", e.Index, ago(now, &e.At))
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

// byClock puts the time of day here in the place of a time that the hub wrote.
func byClock(text string, end *time.Time, now time.Time) string {
	if end == nil {
		return text
	}
	return strings.ReplaceAll(text, end.UTC().Format(time.RFC3339), when(now, *end))
}

// withEnd gives a reason with the time at which it may be over, said once.
func withEnd(text string, end *time.Time, now time.Time) string {
	if told := byClock(text, end, now); told != text || end == nil {
		return told
	}
	return text + ", until " + when(now, *end)
}

// paragraph writes a text, at a terminal broken between words with what follows set in
// below its beginning.
func (a *app) paragraph(b *strings.Builder, indent, text string) {
	if !a.ttyOut {
		b.WriteString(text + "\n")
		return
	}
	used := 0
	for i, w := range strings.Fields(text) {
		n := utf8.RuneCountInString(unpainted.Replace(w))
		switch {
		case i == 0:
			b.WriteString(indent)
			used = len(indent)
		case used+1+n > explainWidth:
			b.WriteString("\n" + indent + "  ")
			used = len(indent) + 2
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(w)
		used += n
	}
	b.WriteByte('\n')
}

// unpainted takes out the marks of bold text, which take no room.
var unpainted = strings.NewReplacer("\x1b["+string(bold)+"m", "", "\x1b[0m", "")
