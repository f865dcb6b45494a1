package process

import (
	"cmp"
	"maps"
	"slices"
)

// A lineage follows the processes of a job over a series of pictures of the process table. Once seen a process
// is known until it dies, so that losing its parent does not lose it.
type lineage struct {
	root  Identity // the supervisor, which is not of the job itself; zero when it is gone
	known map[Identity]bool
	// sessions that processes of the job opened, by the identity of the process that did.
	sessions map[int]Identity
}

// newLineage starts from a supervisor, or from processes that were recorded by one.
func newLineage(root Identity, seen ...Identity) *lineage {
	l := &lineage{root: root, known: map[Identity]bool{}, sessions: map[int]Identity{}}
	for _, id := range seen {
		if id.PID > 0 {
			l.known[id] = true
			l.sessions[id.PID] = id
		}
	}
	return l
}

// update takes a picture and gives the processes of the job that are alive in it, by id.
func (l *lineage) update(procs []proc) []Identity {
	at := make(map[int]proc, len(procs))
	inSession := map[int]bool{}
	for _, p := range procs {
		at[p.PID] = p
		inSession[p.session] = true
	}
	ours := map[Identity]bool{}
	for id := range l.known {
		if p, ok := at[id.PID]; ok && p.Identity == id {
			ours[id] = true
		}
	}
	for {
		before := len(ours)
		for _, p := range procs {
			if p.Identity != l.root && !ours[p.Identity] && l.joins(p, at, ours) {
				ours[p.Identity] = true
			}
		}
		if len(ours) == before {
			break
		}
	}
	for id := range ours {
		if at[id.PID].session == id.PID {
			l.sessions[id.PID] = id
		}
	}
	// A session number stays taken while the session has a member, and may be given to a stranger after that.
	maps.DeleteFunc(l.sessions, func(number int, _ Identity) bool { return !inSession[number] })
	l.known = ours
	return slices.SortedFunc(maps.Keys(ours), func(a, b Identity) int { return cmp.Compare(a.PID, b.PID) })
}

// joins says whether a process is of the job by its parent or its session.
func (l *lineage) joins(p proc, at map[int]proc, ours map[Identity]bool) bool {
	if parent, ok := at[p.parent]; ok {
		if ours[parent.Identity] || (l.root.PID > 0 && parent.Identity == l.root) {
			return true
		}
	}
	leader, ok := l.sessions[p.session]
	if !ok || p.StartTime < leader.StartTime {
		return false
	}
	now, ok := at[p.session]
	return !ok || now.Identity == leader
}
