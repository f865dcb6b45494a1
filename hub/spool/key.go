package spool

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Name says which of an attempt's streams is meant.
type Name string

// The streams of an attempt.
const (
	Output Name = "output" // what its process wrote
	Events Name = "events" // what its agent CLI reported about itself
)

// Key names one stream: a job, the fence of one of its attempts, and which of
// that attempt's streams.
type Key struct {
	Job   fleet.JobID
	Fence fleet.Fence
	Name  Name
}

// String gives the key as JOB/EPOCH-INDEX.NAME, which is also its path below the
// store's directory.
func (k Key) String() string { return string(k.Job) + "/" + k.file() }

func (k Key) file() string { return k.Fence.String() + "." + string(k.Name) }

func (k Key) path(dir string) string { return filepath.Join(dir, string(k.Job), k.file()) }

// check refuses a key that does not make a plain path of exactly two elements.
func (k Key) check() error {
	switch {
	case !validJob(k.Job):
		return fmt.Errorf("job %q is not an id: %w", k.Job, fleet.BadRequest)
	case k.Fence.IsZero():
		return fmt.Errorf("stream of job %s without a fence: %w", k.Job, fleet.BadRequest)
	case k.Name != Output && k.Name != Events:
		return fmt.Errorf("stream %q of job %s is neither output nor events: %w", k.Name, k.Job, fleet.BadRequest)
	}
	return nil
}

// validJob allows only what is one plain file name everywhere; two ids that
// differ in case alone would share a directory on a Mac, so there is no upper case.
func validJob(job fleet.JobID) bool {
	if len(job) == 0 || len(job) > 64 {
		return false
	}
	for _, c := range []byte(job) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// parseFile reads the form that file writes.
func parseFile(job fleet.JobID, file string) (Key, bool) {
	fence, name, ok := strings.Cut(file, ".")
	if !ok {
		return Key{}, false
	}
	f, err := fleet.ParseFence(fence)
	k := Key{Job: job, Fence: f, Name: Name(name)}
	if err != nil || k.check() != nil || k.file() != file {
		return Key{}, false
	}
	return k, true
}

// Info describes a stream.
type Info struct {
	Key      Key
	Size     int64        // durable bytes
	Sealed   bool         // nothing can be added any more
	Digest   fleet.Digest // of the whole stream; empty unless it was sealed with one
	SealedAt time.Time    // when the seal was written; zero while not sealed
}

// ParseKey reads the form that String writes.
func ParseKey(s string) (Key, bool) {
	job, file, ok := strings.Cut(s, "/")
	if !ok || !validJob(fleet.JobID(job)) {
		return Key{}, false
	}
	return parseFile(fleet.JobID(job), file)
}
