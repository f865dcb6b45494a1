package fleet

import (
	"encoding/base64"
	"time"
)

// Ring is how early a runner is given a new release.
type Ring string

// The rings, in the order in which a release comes to them.
const (
	RingCanary Ring = "canary"
	RingEarly  Ring = "early"
	RingAll    Ring = "all"
)

// Rings lists them in order.
var Rings = []Ring{RingCanary, RingEarly, RingAll}

// Rank orders rings, the first one to be given a release lowest; an unknown one has -1.
func (r Ring) Rank() int {
	for i, is := range Rings {
		if r == is {
			return i
		}
	}
	return -1
}

// Release is one version of this program as runners may be given it.
type Release struct {
	Version string                `json:"version"`
	Files   []ReleaseFile         `json:"files"`
	AddedAt time.Time             `json:"added_at"`
	AddedBy string                `json:"added_by"`
	Ring    Ring                  `json:"ring"`              // the last one that it is offered to
	Asked   string                `json:"asked,omitempty"`   // names a person's asking for it; empty: since it was added
	Since   time.Time             `json:"since"`             // when that began
	Halted  string                `json:"halted,omitempty"`  // why it is offered to nobody further; empty: it goes on
	Runners map[RunnerID]Progress `json:"runners,omitempty"` // that run it, or failed to
}

// ReleaseFile is the program for one platform. It is a blob.
type ReleaseFile struct {
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	SHA256    Digest `json:"sha256"`
	Size      int64  `json:"size"`
	Signature string `json:"signature"` // minisign's, as its file has it
}

// Bounds of releases.
const (
	MaxReleases     = 20
	MaxReleaseFiles = 16
	MaxProgram      = 512 << 20 // bytes
	MaxSignature    = 2 << 10   // bytes of the text
)

// IsReleaseKey says whether a text has the form of a minisign public key, without its
// comment.
func IsReleaseKey(s string) bool {
	b, err := base64.StdEncoding.DecodeString(s)
	return err == nil && len(b) == 42 && string(b[:2]) == "Ed"
}

// ReleaseKeyOf gives the key of releases that a cluster's settings name.
func ReleaseKeyOf(settings map[string]string) string {
	if k := settings[SettingReleaseKey]; IsReleaseKey(k) {
		return k
	}
	return ""
}

// Progress is how a release goes on one runner.
type Progress struct {
	Since   time.Time `json:"since"`             // it was seen to run it, or to have failed
	Healthy bool      `json:"healthy,omitempty"` // it was heard often enough with it
	Job     JobID     `json:"job,omitempty"`     // that succeeded there with it
	Failed  string    `json:"failed,omitempty"`  // why it came to nothing
}

// File gives the program for a platform.
func (r *Release) File(os, arch string) (ReleaseFile, bool) {
	for _, f := range r.Files {
		if f.OS == os && f.Arch == arch {
			return f, true
		}
	}
	return ReleaseFile{}, false
}

// Wanted is a release that a person asked for on one runner, whatever its ring.
type Wanted struct {
	Version   string    `json:"version"`
	Asked     string    `json:"asked"` // names the asking: the same release may be asked for again
	Downgrade bool      `json:"downgrade,omitempty"`
	By        string    `json:"by"`
	At        time.Time `json:"at"`
}

// RunnerUpdate is what a runner says of its own updates.
type RunnerUpdate struct {
	Policy  string `json:"policy"`            // auto, ask or off, as it is in force
	Offered string `json:"offered,omitempty"` // the release that the hub offers it
	Waits   string `json:"waits,omitempty"`   // why it does not take that now
	State   string `json:"state,omitempty"`   // of the last one: testing, trying, confirmed, failed, rolled_back
	To      string `json:"to,omitempty"`      // the last one
	Asked   string `json:"asked,omitempty"`   // by which asking
	Why     string `json:"why,omitempty"`     // it failed
}
