package hub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

const gib = 1 << 30

func disk(free, total int64) fleet.Volume {
	return fleet.Volume{Path: "/data", Known: true, Free: free, Total: total, Inodes: -1}
}

// show gives findings in short.
func show(fs []finding) string {
	var out []string
	for _, f := range fs {
		out = append(out, fmt.Sprintf("%s %t", f.kind, f.class == faulty))
	}
	return strings.Join(out, ", ")
}

func TestFindings(t *testing.T) {
	ready := fleet.Docker{State: fleet.DockerReady, Verified: true, Compose: "2.30.0"}
	for _, c := range []struct {
		name string
		s    fleet.Health
		was  fleet.FaultKind
		had  bool
		want string
	}{
		{"nothing is known", fleet.Health{}, "", true, ""},
		{"nothing is known, and there was a fault", fleet.Health{Docker: fleet.Docker{State: fleet.DockerUnknown}}, fleet.FaultDocker, true, ""},
		{"room on both", fleet.Health{Workspace: disk(11*gib, 100*gib), Cache: disk(50*gib, 100*gib)}, "", false, "disk false"},
		{"exactly the floor", fleet.Health{Workspace: disk(10*gib, 100*gib), Cache: disk(50*gib, 100*gib)}, "", false, "disk false"},
		{"one is low", fleet.Health{Workspace: disk(50*gib, 100*gib), Cache: disk(10*gib-1, 100*gib)}, "", false, "disk true"},
		{"one is low, the other not known", fleet.Health{Workspace: disk(gib, 100*gib)}, "", false, "disk true"},
		{"one has room, the other not known", fleet.Health{Workspace: disk(50*gib, 100*gib)}, "", false, ""},
		{"at the edge, and it was low", fleet.Health{Workspace: disk(10*gib+gib/4, 100*gib), Cache: disk(50*gib, 100*gib)}, fleet.FaultDisk, false, "disk true"},
		{"beyond the edge", fleet.Health{Workspace: disk(10*gib+gib/2, 100*gib), Cache: disk(50*gib, 100*gib)}, fleet.FaultDisk, false, "disk false"},
		{"few inodes", fleet.Health{Workspace: fleet.Volume{Known: true, Free: 50 * gib, Inodes: 9, Nodes: 1000}, Cache: disk(50*gib, 100*gib)}, "", false, "disk true"},
		{"inodes at the edge", fleet.Health{Workspace: fleet.Volume{Known: true, Free: 50 * gib, Inodes: 19, Nodes: 1000}, Cache: disk(50*gib, 100*gib)}, fleet.FaultDisk, false, "disk true"},
		{"inodes enough", fleet.Health{Workspace: fleet.Volume{Known: true, Free: 50 * gib, Inodes: 10, Nodes: 1000}, Cache: disk(50*gib, 100*gib)}, "", false, "disk false"},
		{"an old sample", fleet.Health{Age: fleet.HealthFresh + 1, Workspace: disk(gib, 100*gib)}, "", false, ""},
		{"memory enough", fleet.Health{Memory: &fleet.Memory{Total: 64 * gib, Available: gib}}, "", false, "memory false"},
		{"memory low", fleet.Health{Memory: &fleet.Memory{Total: 64 * gib, Available: gib - 1}}, "", false, "memory true"},
		{"memory at the edge", fleet.Health{Memory: &fleet.Memory{Total: 64 * gib, Available: gib + gib/4}}, fleet.FaultMemory, false, "memory true"},
		{"little memory on a small machine", fleet.Health{Memory: &fleet.Memory{Total: gib, Available: 100 << 20}}, "", false, "memory true"},
		{"memory not known", fleet.Health{Memory: &fleet.Memory{Total: gib}}, fleet.FaultMemory, false, ""},
		{"no Docker, and never any", fleet.Health{Docker: fleet.Docker{State: fleet.DockerAbsent}}, "", false, ""},
		{"no Docker any more", fleet.Health{Docker: fleet.Docker{State: fleet.DockerAbsent}}, "", true, "docker true"},
		{"Docker is down", fleet.Health{Docker: fleet.Docker{State: fleet.DockerDown}}, "", true, "docker true"},
		{"Docker could not be asked", fleet.Health{Docker: fleet.Docker{State: fleet.DockerUnknown}}, "", true, ""},
		{"Docker and Compose", fleet.Health{Docker: ready}, fleet.FaultDocker, true, "docker false"},
		{"Compose is gone for a moment", fleet.Health{Docker: fleet.Docker{State: fleet.DockerReady, Verified: true, VerifiedAge: time.Minute}}, "", true, ""},
		{"Compose is gone", fleet.Health{Docker: fleet.Docker{State: fleet.DockerReady, Verified: true, VerifiedAge: time.Hour}}, "", true, "docker true"},
		{"Compose was never there", fleet.Health{Docker: fleet.Docker{State: fleet.DockerReady}}, "", false, ""},
	} {
		got := show(findings(&c.s, func(k fleet.FaultKind) bool { return k == c.was }, 10*gib, c.had))
		if got != c.want {
			t.Errorf("%s: found %q; want %q", c.name, got, c.want)
		}
	}
}

// TestFiguresAtTheEdgeDoNotFlap: however free bytes wander within the edge, the class
// changes once.
func TestFiguresAtTheEdgeDoNotFlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was, changes := false, 0
		for range 50 {
			s := fleet.Health{Cache: disk(50*gib, 100*gib),
				Workspace: disk(10*gib+rapid.Int64Range(-gib/2, gib/2-1).Draw(t, "off"), 100*gib)}
			fs := findings(&s, func(fleet.FaultKind) bool { return was }, 10*gib, false)
			if now := fs[0].class == faulty; now != was {
				was = now
				changes++
			}
		}
		if changes > 1 {
			t.Fatalf("the class changed %d times", changes)
		}
	})
}

// monitored is the record of one machine and what the leader keeps of it, in made-up time.
type monitored struct {
	vital
	rec *fleet.HealthRecord
	now time.Time
}

// sample takes one in, records what is to be recorded, and gives that in short.
func (m *monitored) sample(after time.Duration, s fleet.Health) string {
	m.now = m.now.Add(after)
	soon := m.note("r", &s, m.rec, 10*gib, m.now, m.now)
	if m.want == nil {
		return ""
	}
	m.told = m.now
	if m.rec == nil {
		m.rec = &fleet.HealthRecord{}
	}
	m.rec.Free, m.rec.Memory, m.rec.Docker = m.want.Free, m.want.Memory, m.want.Docker
	m.rec.HadOnce = m.rec.HadOnce || m.want.Verified
	out := "figures"
	if soon {
		out = "soon"
	}
	for _, f := range m.want.Begun {
		out += " +" + string(f.Kind)
		if _, there := m.rec.Fault(f.Kind); !there {
			at := m.now
			m.rec.Faults = append(m.rec.Faults, fleet.Fault{Kind: f.Kind, Since: m.now, Alerted: &at})
		}
	}
	for _, f := range m.want.Ended {
		out += " -" + string(f.Kind)
		m.rec.Faults = nil
	}
	return out
}

func TestWhatIsRecordedOfHealth(t *testing.T) {
	m := &monitored{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	well := func(free int64) fleet.Health {
		return fleet.Health{Workspace: disk(free, 500*gib), Cache: disk(500*gib, 900*gib), Memory: &fleet.Memory{Total: 64 * gib, Available: 32 * gib},
			Docker: fleet.Docker{State: fleet.DockerReady, Verified: true, Compose: "2.30.0"}}
	}
	down, low := well(100*gib), well(100*gib)
	down.Docker = fleet.Docker{State: fleet.DockerDown, Verified: true, VerifiedAge: time.Minute}
	low.Memory = &fleet.Memory{Total: 64 * gib, Available: gib / 2}
	for i, c := range []struct {
		after time.Duration
		s     fleet.Health
		want  string
	}{
		{0, well(100 * gib), "soon"}, // Docker answers there for the first time
		{20 * time.Second, well(150 * gib), ""},
		{40 * time.Second, well(150 * gib), "figures"}, // a minute later it has moved
		{time.Hour, well(151 * gib), ""},               // by too little
		{20 * time.Second, well(5 * gib), "soon +disk"},
		{20 * time.Second, well(5 * gib), ""},
		{20 * time.Second, fleet.Health{}, ""}, // nothing is known: nothing ends
		{20 * time.Second, well(10*gib + 1), ""},
		{20 * time.Second, well(20 * gib), "soon -disk"},
		{20 * time.Second, down, ""}, // it may be started anew
		{20 * time.Second, well(20 * gib), ""},
		{20 * time.Second, down, "figures"},
		{20 * time.Second, down, "soon +docker"},
		{20 * time.Second, well(100 * gib), "soon -docker"},
		{20 * time.Second, low, ""},
		{20 * time.Second, low, "soon +memory"},
	} {
		if got := m.sample(c.after, c.s); got != c.want {
			t.Errorf("sample %d: recorded %q; want %q", i, got, c.want)
		}
	}
}

// TestDelayedAlertIsNotForgotten: a fault that began again too soon after the last alert
// is reported again once people may be told of it.
func TestDelayedAlertIsNotForgotten(t *testing.T) {
	m := &monitored{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	alerted := m.now.Add(-10 * time.Minute)
	m.rec = &fleet.HealthRecord{Free: 5 * gib, Memory: -1, Docker: fleet.DockerUnknown, Faults: []fleet.Fault{{Kind: fleet.FaultDisk, Since: m.now, Alerted: &alerted}}}
	s := fleet.Health{Workspace: disk(5*gib, 500*gib)}
	if got := m.sample(19*time.Minute, s); got != "" {
		t.Errorf("29 minutes after the last alert: %q", got)
	}
	if got := m.sample(time.Minute, s); got != "soon +disk" {
		t.Errorf("30 minutes after the last alert: %q; want it reported again", got)
	}
}
