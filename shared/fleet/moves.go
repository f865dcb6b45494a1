package fleet

// State is what a job is, as far as it is recorded. Whatever else is worth saying
// (cancelling, waiting on a provider, runner offline) is a Reason beside it.
type State string

// The states of a job. The last five are ends; Lost is the one end that the same
// attempt may still leave, by coming back.
const (
	Queued      State = "queued"    // waits for a runner
	Assigned    State = "assigned"  // a runner was chosen and has not shown life for it yet
	Preparing   State = "preparing" // the runner makes the worktree ready; needs no permit
	Running     State = "running"   // accepted: the permit to start is committed
	Verifying   State = "verifying" // finished; evidence is being completed and judged; the slot is free
	Succeeded   State = "succeeded"
	Failed      State = "failed"
	NeedsReview State = "needs_review" // the evidence decides neither way; a person does
	Cancelled   State = "cancelled"
	Blocked     State = "blocked" // cannot go on without a person
	Lost        State = "lost"    // the outcome is unknown; never replayed by itself
)

// States lists every state in the order of a job's life.
var States = []State{Queued, Assigned, Preparing, Running, Verifying, Succeeded, Failed, NeedsReview, Cancelled, Blocked, Lost}

// Ended says whether a turn in state s waits for nothing more by itself.
func (s State) Ended() bool {
	switch s {
	case Succeeded, Failed, NeedsReview, Cancelled, Blocked, Lost:
		return true
	}
	return false
}

// Active says whether a job in state s occupies a runner, a concurrency key and,
// but for Verifying, a slot.
func (s State) Active() bool {
	switch s {
	case Assigned, Preparing, Running, Verifying:
		return true
	}
	return false
}

// Move says why a state may follow another; the empty move is illegal.
type Move string

// moves is the whole table: moves[from][to] is the cause of a legal move.
var moves = map[State]map[State]Move{
	Queued: {
		Assigned:    "a runner was picked",
		Cancelled:   "cancelled while queued",
		Blocked:     "queue timeout or a turn that cannot start",
		Running:     "the lost attempt came back before its rerun was accepted",
		Verifying:   "the lost attempt finished before its rerun was accepted",
		Succeeded:   "the lost attempt finished before its rerun was accepted, and was judged at once",
		Failed:      "the lost attempt finished before its rerun was accepted, and was judged at once",
		NeedsReview: "the lost attempt finished before its rerun was accepted, and was judged at once",
	},
	Assigned: {
		Preparing:   "the runner shows progress",
		Running:     "accepted",
		Queued:      "declined, or no accept in time",
		Cancelled:   "cancelled before it was accepted",
		Verifying:   "the lost attempt finished before its rerun was accepted",
		Blocked:     "the runner cannot start this turn at all",
		Succeeded:   "the lost attempt finished before its rerun was accepted, and was judged at once",
		Failed:      "the lost attempt finished before its rerun was accepted, and was judged at once",
		NeedsReview: "the lost attempt finished before its rerun was accepted, and was judged at once",
	},
	Preparing: {
		Running:     "accepted",
		Queued:      "declined, or silence before the accept",
		Cancelled:   "cancelled before it was accepted",
		Verifying:   "the lost attempt finished before its rerun was accepted",
		Blocked:     "the runner cannot start this turn at all",
		Succeeded:   "the lost attempt finished before its rerun was accepted, and was judged at once",
		Failed:      "the lost attempt finished before its rerun was accepted, and was judged at once",
		NeedsReview: "the lost attempt finished before its rerun was accepted, and was judged at once",
	},
	Running: {
		Verifying:   "finished",
		Succeeded:   "finished and judged at once",
		Failed:      "finished and judged at once",
		NeedsReview: "finished and judged at once",
		Queued:      "lost and runs again by the job's own rule, or tried again or with another choice",
		Blocked:     "its budget is used up",
		Cancelled:   "stopped on request, or abandoned by an admin",
		Lost:        "silence, or no proof of how it ended",
	},
	Verifying: {
		Succeeded:   "the evidence was accepted",
		Failed:      "the evidence was rejected",
		NeedsReview: "the evidence decides neither way",
		Cancelled:   "abandoned by an admin",
	},
	Succeeded: {
		Queued: "a follow-up",
	},
	Failed: {
		Queued: "a follow-up or a retry",
	},
	NeedsReview: {
		Succeeded: "accepted by a person or by late evidence",
		Failed:    "rejected by a person or by late evidence",
		Queued:    "a follow-up or a retry",
	},
	Cancelled: {
		Queued: "a follow-up or a retry",
	},
	Blocked: {
		Queued:      "a fresh follow-up or a retry",
		Cancelled:   "cancelled while blocked",
		Running:     "the lost attempt came back while its rerun was blocked",
		Verifying:   "the lost attempt finished while its rerun was blocked",
		Succeeded:   "the lost attempt finished while its rerun was blocked, and was judged at once",
		Failed:      "the lost attempt finished while its rerun was blocked, and was judged at once",
		NeedsReview: "the lost attempt finished while its rerun was blocked, and was judged at once",
	},
	Lost: {
		Running:     "the same attempt came back alive",
		Verifying:   "the same attempt reported its end",
		Succeeded:   "the same attempt reported its end and was judged at once",
		Failed:      "the same attempt reported its end and was judged at once",
		NeedsReview: "the same attempt reported its end and was judged at once",
		Queued:      "retried by a person, or the same attempt reported an end after which it is tried again",
		Blocked:     "the same attempt reported its end and the budget is used up",
		Cancelled:   "abandoned by an admin, or ended on request",
	},
}

// Legal says whether a job may move from one state to another, and why it would.
func Legal(from, to State) (Move, bool) {
	m, ok := moves[from][to]
	return m, ok
}
