package process

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func seen(pid, parent, session int, start uint64) proc {
	return proc{Identity: Identity{PID: pid, StartTime: start}, parent: parent, session: session}
}

func TestLineageFollowsTheJob(t *testing.T) {
	root, child := Identity{PID: 10, StartTime: 100}, Identity{PID: 11, StartTime: 101}
	supervisor, stranger := seen(10, 1, 10, 100), seen(5, 1, 5, 50)
	for name, c := range map[string]struct {
		root     Identity
		recorded []Identity
		pictures [][]proc
		want     []int // in the last picture
	}{
		"child and grandchild": {root, nil, [][]proc{
			{stranger, supervisor, seen(12, 11, 11, 102), seen(11, 10, 11, 101)},
		}, []int{11, 12}},
		"orphan that was seen": {root, nil, [][]proc{
			{supervisor, seen(11, 10, 11, 101), seen(12, 11, 12, 102)},
			{supervisor, seen(12, 1, 12, 102)},
		}, []int{12}},
		"child of an orphan": {root, nil, [][]proc{
			{supervisor, seen(11, 10, 11, 101), seen(12, 11, 12, 102)},
			{supervisor, seen(12, 1, 12, 102), seen(13, 12, 13, 103)},
		}, []int{12, 13}},
		"orphan never seen, known by its session": {root, nil, [][]proc{
			{supervisor, seen(11, 10, 11, 101)},
			{supervisor, seen(14, 1, 11, 104)},
		}, []int{14}},
		"number given again": {root, nil, [][]proc{
			{supervisor, seen(11, 10, 11, 101)},
			{supervisor, seen(11, 1, 11, 900), seen(12, 11, 11, 901)},
		}, []int{}},
		"session number given again": {root, nil, [][]proc{
			{supervisor, seen(11, 10, 11, 101)},
			{supervisor},
			{supervisor, seen(14, 1, 11, 904)},
		}, []int{}},
		"after the supervisor, by session": {Identity{}, []Identity{child}, [][]proc{
			{stranger, seen(14, 1, 11, 104)},
		}, []int{14}},
		"older than the session's leader": {Identity{}, []Identity{child}, [][]proc{
			{seen(14, 1, 11, 99)},
		}, []int{}},
		"after the supervisor, nobody": {Identity{}, []Identity{child, {}}, [][]proc{
			{stranger, seen(1, 0, 1, 1), seen(0, 0, 0, 0), seen(11, 1, 11, 500)},
		}, []int{}},
		"the supervisor's own session is not the job's": {root, nil, [][]proc{
			{seen(10, 5, 5, 100), stranger, seen(6, 5, 5, 60)},
		}, []int{}},
	} {
		l := newLineage(c.root, c.recorded...)
		var got []Identity
		for _, p := range c.pictures {
			got = l.update(p)
		}
		pids := []int{}
		for _, id := range got {
			pids = append(pids, id.PID)
		}
		if diff := cmp.Diff(c.want, pids); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
