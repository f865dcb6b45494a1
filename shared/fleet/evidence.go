package fleet

// Evidence is what a runner proved about the work of an attempt and what the hub
// checked of it. A verdict is a function of evidence and policy and nothing else.
type Evidence struct {
	Base          string       `json:"base,omitempty"`     // the starting commit
	Tip           string       `json:"tip,omitempty"`      // the job branch's commit at the end
	Before        string       `json:"before,omitempty"`   // the tip that the turns before had come to, as the hub recorded it
	Tree          string       `json:"tree,omitempty"`     // the tip's tree
	Descends      bool         `json:"descends,omitempty"` // git proved on the runner that tip descends from base
	Commits       []CommitInfo `json:"commits,omitempty"`  // new ones, oldest first, at most 50 carried
	CommitCount   int          `json:"commit_count"`
	RunnerCommit  string       `json:"runner_commit,omitempty"` // made by the runner out of what was left uncommitted
	Branch        string       `json:"branch,omitempty"`
	RescueRef     string       `json:"rescue_ref,omitempty"`
	Stat          DiffStat     `json:"stat"`
	Bundle        Digest       `json:"bundle,omitempty"`
	BundleSize    int64        `json:"bundle_size,omitempty"`
	Patch         Digest       `json:"patch,omitempty"`
	PatchSize     int64        `json:"patch_size,omitempty"`
	BundleChecked bool         `json:"bundle_checked"`         // the hub verified digest and header of the stored bundle
	BundleError   string       `json:"bundle_error,omitempty"` // why it could not
	Closure       string       `json:"closure,omitempty"`      // the run's own note why there is nothing to change
	Artifacts     []Artifact   `json:"artifacts,omitempty"`
	Notes         []string     `json:"notes,omitempty"`
	Swept         int          `json:"swept,omitempty"` // processes that had outlived the command and were ended
	NoRepo        bool         `json:"no_repo,omitempty"`
}

// CommitInfo is one commit as listed in evidence.
type CommitInfo struct {
	SHA     string `json:"sha"`
	Subject string `json:"subject"`
	Author  string `json:"author"`
}

// DiffStat counts what changed between base and tip.
type DiffStat struct {
	Files      int `json:"files"`
	Insertions int `json:"insertions"`
	Deletions  int `json:"deletions"`
}

// Artifact is a file of an attempt in the blob store.
type Artifact struct {
	Name   string `json:"name"`
	Digest Digest `json:"sha256"`
	Size   int64  `json:"size"`
	Type   string `json:"type,omitempty"` // media type
}

// Decision is the word of a verdict.
type Decision string

// The decisions. Ask and Unknown both leave the job to a person.
const (
	Accept  Decision = "accept"
	Reject  Decision = "reject"
	Ask     Decision = "ask"
	Unknown Decision = "unknown"
)

// Verdict is a decision with its reasons and who made it.
type Verdict struct {
	Decision Decision `json:"decision"`
	Reasons  []string `json:"reasons"`
	By       string   `json:"by"` // gate, or the token id of a person
}

// State gives the job state that a verdict leads to.
func (v Verdict) State() State {
	switch v.Decision {
	case Accept:
		return Succeeded
	case Reject:
		return Failed
	}
	return NeedsReview
}
