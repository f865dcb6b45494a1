package journal

import "testing"

func TestDecideIsTotalAndSafe(t *testing.T) {
	bools := []bool{false, true}
	for _, acked := range bools {
		for _, intent := range bools {
			for _, stop := range []string{"", "cancel"} {
				for _, finished := range bools {
					for _, ended := range bools {
						for _, proc := range Processes {
							p := Progress{Acked: acked, Intent: intent, Stop: stop, Finished: finished, Ended: ended}
							got := Decide(p, proc)
							if got == "" {
								t.Errorf("Decide(%+v, %d) is empty", p, proc)
							}
							if starts := got == ResumeStart || got == ResumePrepare; starts && (intent || finished || ended || stop != "" || proc != Gone) {
								t.Errorf("Decide(%+v, %d) = %s: it could run twice", p, proc, got)
							}
							if got == ResumeStart && !acked {
								t.Errorf("Decide(%+v, %d) starts without a permit", p, proc)
							}
						}
					}
				}
			}
		}
	}
	for _, c := range []struct {
		p    Progress
		proc Process
		want Next
	}{
		{Progress{}, Gone, ResumePrepare},
		{Progress{Acked: true}, Gone, ResumeStart},
		{Progress{Acked: true, Intent: true}, Gone, ReportLost},
		{Progress{Acked: true, Intent: true}, Running, Adopt},
		{Progress{Acked: true, Intent: true}, Exited, Finish},
		{Progress{Acked: true, Intent: true, Stop: "cancel"}, Gone, ReportGone},
		{Progress{Acked: true, Intent: true, Stop: "cancel"}, Exited, Finish},
		{Progress{Acked: true, Intent: true, Finished: true}, Gone, Deliver},
		{Progress{Ended: true}, Gone, Deliver},
	} {
		if got := Decide(c.p, c.proc); got != c.want {
			t.Errorf("Decide(%+v, %d) = %s, want %s", c.p, c.proc, got, c.want)
		}
	}
}
