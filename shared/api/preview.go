package api

// Preview is the answer to POST /v1/jobs:preview, whose body is that of POST /v1/jobs.
type Preview struct {
	Harness     string      `json:"harness" doc:"that it would run with"`
	Model       string      `json:"model" doc:"empty: as the CLI's own settings say"`
	Eligible    []string    `json:"eligible" doc:"agents that some runner has and is signed in to"`
	Explanation Explanation `json:"explanation" doc:"as of a job that waits; a runner without a code could take it"`
}
