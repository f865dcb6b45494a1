package fleet

// NotDecided refuses a push while the job's work waits for a person's verdict: the
// same question may be answered otherwise later. Other refusals of a push that name
// the job's state are final.
const NotDecided Code = "not_decided"
