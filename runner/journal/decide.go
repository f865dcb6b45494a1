package journal

// Process is what is known of the processes of an attempt after a restart.
type Process int

// The answers of a look at an attempt's processes.
const (
	Gone    Process = iota // none is left and no record of an end
	Running                // proven to be ours and alive
	Exited                 // ended, with a record of how
)

// Processes lists every answer.
var Processes = []Process{Gone, Running, Exited}

// Next is what a restarted runner does about an attempt in its journal.
type Next string

// The next steps.
const (
	ResumePrepare Next = "resume_prepare" // make it ready again and ask for the permit
	ResumeStart   Next = "resume_start"   // permitted and never launched: it may start
	Adopt         Next = "adopt"          // follow the running process
	Finish        Next = "finish"         // read the record of the end and report it
	ReportLost    Next = "report_lost"    // launched, and nobody knows how it ended
	ReportGone    Next = "report_gone"    // told to stop, and no process is there
	Deliver       Next = "deliver"        // its end is reported: only uploads and acknowledgements are owed
)

// Decide says what to do about an attempt after a restart of the runner. It is
// total: a launch that was never intended can't have happened, so only "acked and
// not intended" may still start; a process with our mark is followed whatever the
// records say.
func Decide(p Progress, proc Process) Next {
	switch {
	case p.Finished || p.Ended:
		return Deliver
	case proc == Running:
		return Adopt
	case proc == Exited:
		return Finish
	case p.Stop != "":
		return ReportGone
	case p.Intent:
		return ReportLost
	case p.Acked:
		return ResumeStart
	}
	return ResumePrepare
}
