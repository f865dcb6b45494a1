package update

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/shared/fleet"
)

// recordVersion is that of update.json. Versions before and after an update both read
// and write the file, so its form is only ever added to.
const recordVersion = 1

// keepTried bounds the releases that are remembered to have come to nothing.
const keepTried = 50

// State is how the last update stands.
type State string

// The states of an update.
const (
	Testing    State = "testing"     // its program is run for the first time, to tell its version
	Trying     State = "trying"      // placed; not known yet to be good
	Confirmed  State = "confirmed"   // the hub was heard with it, and it went on for a while
	Failed     State = "failed"      // the version before never ceased to be the present one
	RolledBack State = "rolled_back" // it failed to start, and the version before is back
)

// Record is update.json.
type Record struct {
	Version   int       `json:"version"`
	State     State     `json:"state,omitempty"` // empty: nothing was tried yet
	From      string    `json:"from,omitempty"`
	To        string    `json:"to,omitempty"`
	Starts    int       `json:"starts,omitempty"` // of To that failed, the one under way included
	Confirmed bool      `json:"confirmed,omitempty"`
	Why       string    `json:"why,omitempty"` // it failed
	At        time.Time `json:"at,omitzero"`   // of the last change of state
	Tried     []Tried   `json:"tried,omitempty"`
}

// Tried is a release that came to nothing here and is not tried again for the same
// asking.
type Tried struct {
	Release string       `json:"release"`
	SHA256  fleet.Digest `json:"sha256"`
	Asked   string       `json:"asked,omitempty"`
	Why     string       `json:"why,omitempty"`
	At      time.Time    `json:"at"`
}

// tried says why a release came to nothing before, for the same asking.
func (r *Record) tried(rel Release) (Tried, bool) {
	i := slices.IndexFunc(r.Tried, func(t Tried) bool {
		return t.Release == rel.Version && t.SHA256 == rel.SHA256 && t.Asked == rel.Asked
	})
	if i < 0 {
		return Tried{}, false
	}
	return r.Tried[i], true
}

// begin gives the record of a release that is run for the first time, and that is not
// tried again for the same asking. What it was before stays as it is.
func (r *Record) begin(from string, rel Release, now time.Time) Record {
	tried := append(slices.Clone(r.Tried), Tried{Release: rel.Version, SHA256: rel.SHA256, Asked: rel.Asked, At: now.UTC()})
	if n := len(tried) - keepTried; n > 0 {
		tried = tried[n:]
	}
	return Record{Version: recordVersion, State: Testing, From: from, To: rel.Version, At: now.UTC(), Tried: tried}
}

// end closes what was being tried, or what never came so far.
func (r *Record) end(s State, why string, now time.Time) {
	r.State, r.Why, r.At = s, fleet.CutText(why, fleet.MaxDetail), now.UTC()
	for i := range r.Tried {
		if t := &r.Tried[i]; t.Release == r.To && t.Why == "" {
			t.Why = r.Why
		}
	}
}

// Standing gives the record; one that can't be read is an error, and says nothing.
func (s *Store) Standing() (Record, error) { return s.load() }

func (s *Store) load() (Record, error) {
	file := filepath.Join(s.prefix, recordFile)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{Version: recordVersion}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("read how the last update went: %w", err)
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, fmt.Errorf("read %s: %w", file, err)
	}
	if r.Version != recordVersion {
		return Record{}, fmt.Errorf("read %s: version %d, this program knows %d", file, r.Version, recordVersion)
	}
	return r, nil
}

// save writes the record durably; a crash leaves the old one or the new one.
func (s *Store) save(r Record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.Replace(filepath.Join(s.prefix, recordFile), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("keep how the update goes: %w", err)
	}
	return nil
}

// change reads the record, changes and writes it.
func (s *Store) change(do func(*Record) bool) error {
	return s.locked(func() error {
		r, err := s.load()
		if err != nil || !do(&r) {
			return err
		}
		return s.save(r)
	})
}
