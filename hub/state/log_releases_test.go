package state

import (
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// writeReleasesLog makes a log of releases: rings, askings, progress, halts.
func writeReleasesLog(t *testing.T) []byte {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "cluster", Epoch: 1})
	ofReleases(g)
	return written(g)
}

// ofReleases applies every command about releases.
func ofReleases(g *rig) {
	for _, id := range []fleet.RunnerID{"u1", "u2"} {
		g.enrol(id)
		g.do(&UpdateRunner{ID: id, Facts: &fleet.RunnerFacts{Version: "1.0.0", OS: "linux", Arch: "amd64", Update: &fleet.RunnerUpdate{Policy: "auto"}}})
	}
	g.do(added("1.1.0"))
	g.repeated(added("1.1.0"))
	g.do(added("0.9.0"))
	other := added("1.2.0")
	other.Key = otherReleaseKey
	g.refused(fleet.Conflict, other)
	g.do(&SetRing{ID: "u1", Ring: fleet.RingCanary})
	g.do(&RecordProgress{Version: "1.1.0", Runners: map[fleet.RunnerID]fleet.Progress{"u1": {}}})
	g.do(&RecordProgress{Version: "1.1.0", Runners: map[fleet.RunnerID]fleet.Progress{"u1": {Healthy: true, Job: "j1"}}})
	g.do(&MoveRelease{Version: "1.1.0", From: fleet.RingCanary, Ring: fleet.RingEarly})
	g.do(&RecordProgress{Version: "1.1.0", Runners: map[fleet.RunnerID]fleet.Progress{"u2": {Failed: "3 starts in all failed"}}})
	g.do(&MoveRelease{Version: "1.1.0", From: fleet.RingEarly, Halt: "u2 went back"})
	g.do(&MoveRelease{Version: "1.1.0", Ring: fleet.RingAll, Asked: "a1"})
	g.do(&WantRelease{Runner: "u2", Version: "0.9.0", Asked: "a2", Downgrade: true})
	g.do(&WantRelease{Runner: "u2"})
	g.do(&RemoveRelease{Version: "0.9.0"})
}

const (
	releaseKey      = "RWQBAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4fICEiIyQlJico"
	otherReleaseKey = "RWQJAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4fICEiIyQlJico"
)

func added(version string) *AddRelease {
	return &AddRelease{Version: version, Key: releaseKey, Files: []fleet.ReleaseFile{
		{OS: "linux", Arch: "amd64", SHA256: digest(version), Size: 1 << 20, Signature: "untrusted comment: x\nRUQ\n"},
	}}
}
