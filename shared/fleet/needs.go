package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

// Needs are what a job requires of the machine that runs it, beside labels.
type Needs struct {
	OS             string `json:"os,omitempty"`              // linux, darwin
	Arch           string `json:"arch,omitempty"`            // amd64, arm64
	HarnessVersion string `json:"harness_version,omitempty"` // the least, e.g. 0.120.0
	Docker         bool   `json:"docker,omitempty"`          // daemon and Compose, verified within DockerFresh
	Disk           int64  `json:"disk,omitempty"`            // bytes free
	Memory         int64  `json:"memory,omitempty"`          // bytes available
}

// Choice is one way to run an agent's job.
type Choice struct {
	Harness string `json:"harness"`
	Model   string `json:"model,omitempty"` // empty: as the CLI's own settings say
}

// Provider names who serves the choice's model.
func (c Choice) Provider() string { return ProviderOf(c.Harness, c.Model) }

// String gives the choice as it is written: harness, or harness:model.
func (c Choice) String() string {
	if c.Model == "" {
		return c.Harness
	}
	return c.Harness + ":" + c.Model
}

// Transition is one step forward along a job's list of choices.
type Transition struct {
	At      time.Time    `json:"at"`
	Attempt int          `json:"attempt"` // whose end caused it
	From    Choice       `json:"from"`
	To      Choice       `json:"to"`
	Class   FailureClass `json:"class"`
	Skipped []Choice     `json:"skipped,omitempty"` // in between, of the same account
	Detail  string       `json:"detail,omitempty"`
}

// Learned is what was found out about a piece of work by its failures. It stays.
type Learned struct {
	Docker bool `json:"docker,omitempty"` // an attempt failed because there was no Docker
}

// Bounds of placement.
const (
	MaxPriority   = 10               // of a job, and -MaxPriority the least
	PriorityAge   = 30 * time.Minute // of waiting that counts as one step of priority, so that nothing waits for ever
	MaxFallbacks  = 16               // choices in a job's list
	MaxRetries    = 3                // executions of a turn beyond the first, by default and at most
	RetryPause    = time.Minute      // before the first retry; doubled before each further one
	FootprintRoom = 1 << 30          // bytes reserved for a repository beyond what is known of it, and for one of which nothing is known
)

// ChoiceOf gives what a turn of the job is to be run with: its place in the list of
// choices, or what the job itself asks for. A later turn begins where the one before it
// had come to, and may ask for another model of the same harness.
func (j *Job) ChoiceOf(t *Turn) Choice {
	c := Choice{j.Spec.Harness, j.Spec.Model}
	if t.Model != "" {
		c.Model = t.Model
	}
	if t.Choice > 0 && t.Choice <= len(j.Spec.Fallbacks) {
		c = j.Spec.Fallbacks[t.Choice-1]
		if t.Model != "" && len(t.Moves) == 0 {
			c.Model = t.Model
		}
	}
	return c
}

// CacheOf names the cache of a repository on whatever runner has one, in 16 hex digits.
func (r *Repo) CacheOf() string {
	key := "url\x00" + strings.TrimSuffix(strings.TrimSuffix(r.URL, "/"), ".git")
	if r.URL == "" {
		key = "key\x00" + r.CacheKey
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}
