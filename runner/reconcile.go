package runner

// want is what the hub's newest desired set says of one attempt.
type want int

const (
	wantNothing  want = iota // the set does not name it
	wantRun                  // run; the accept is not committed
	wantAccepted             // run; the accept is committed
	wantStop
	wantForget
	wants
)

// have is what this runner holds of one attempt.
type have int

const (
	haveNone      have = iota // no attempt and no record
	haveForgotten             // no record any more, but its order was obeyed once
	havePreparing             // before the permit: worktree, probe, accept on its way
	haveRunning               // launched, or permitted to launch
	haveStopping              // told to stop, processes still there
	haveEnding                // the process is over; the result is being made
	haveEnded                 // its end is in the outbox
	haveSettled               // its end is acknowledged
	haves
)

// action is what the runner does about one attempt after a desired set.
type action string

const (
	doPrepare    action = "prepare"     // take the fence on and make ready
	doPermit     action = "start"       // the accept is committed: it may start
	doKeep       action = "keep"        // go on
	doUnlisted   action = "unlisted"    // go on, and tell the hub that it did not name it
	doStop       action = "stop"        // end it, also while it is being prepared
	doReportLost action = "report_lost" // accepted once, and nothing of it is here
	doReportGone action = "report_gone" // nothing of it is here
	doForget     action = "forget"      // drop the local records
	doNothing    action = "nothing"
)

// plan is total: every pair has an action. Three cells carry the weight. Accepted
// and not here is reported lost and never started, because it may have run. Not
// named and alive goes on, because absence is never an instruction. Told to stop
// ends an attempt in whatever stage it is.
var plan = [wants][haves]action{
	wantNothing: {
		haveNone: doNothing, haveForgotten: doNothing, havePreparing: doUnlisted, haveRunning: doUnlisted,
		haveStopping: doUnlisted, haveEnding: doUnlisted, haveEnded: doUnlisted, haveSettled: doUnlisted,
	},
	wantRun: {
		haveNone: doPrepare, haveForgotten: doNothing, havePreparing: doKeep, haveRunning: doKeep,
		haveStopping: doKeep, haveEnding: doKeep, haveEnded: doKeep, haveSettled: doKeep,
	},
	wantAccepted: {
		haveNone: doReportLost, haveForgotten: doReportLost, havePreparing: doPermit, haveRunning: doKeep,
		haveStopping: doKeep, haveEnding: doKeep, haveEnded: doKeep, haveSettled: doKeep,
	},
	wantStop: {
		haveNone: doReportGone, haveForgotten: doReportGone, havePreparing: doStop, haveRunning: doStop,
		haveStopping: doKeep, haveEnding: doKeep, haveEnded: doKeep, haveSettled: doReportGone,
	},
	wantForget: {
		haveNone: doNothing, haveForgotten: doNothing, havePreparing: doUnlisted, haveRunning: doUnlisted,
		haveStopping: doUnlisted, haveEnding: doUnlisted, haveEnded: doForget, haveSettled: doForget,
	},
}
