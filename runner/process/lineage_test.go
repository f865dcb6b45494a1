package process

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func row(pid, parent, session int, start uint64) proc {
	return proc{Identity: Identity{PID: pid, StartTime: start}, parent: parent, session: session}
}

func TestLineageFollowsTheJob(t *testing.T) {
	root, child := Identity{PID: 10, StartTime: 100}, Identity{PID: 11, StartTime: 101}
	supervisor, stranger := row(10, 1, 10, 100), row(5, 1, 5, 50)
	for name, c := range map[string]struct {
		root     Identity
		seen     []Identity
		pictures [][]proc
		want     []int // in the last picture
	}{
		"child and grandchild": {root, nil, [][]proc{
			{stranger, supervisor, row(12, 11, 11, 102), row(11, 10, 11, 101)},
		}, []int{11, 12}},
		"orphan that was seen": {root, nil, [][]proc{
			{supervisor, row(11, 10, 11, 101), row(12, 11, 12, 102)},
			{supervisor, row(12, 1, 12, 102)},
		}, []int{12}},
		"child of an orphan": {root, nil, [][]proc{
			{supervisor, row(11, 10, 11, 101), row(12, 11, 12, 102)},
			{supervisor, row(12, 1, 12, 102), row(13, 12, 13, 103)},
		}, []int{12, 13}},
		"orphan never seen, known by its session": {root, nil, [][]proc{
			{supervisor, row(11, 10, 11, 101)},
			{supervisor, row(14, 1, 11, 104)},
		}, []int{14}},
		"number given again": {root, nil, [][]proc{
			{supervisor, row(11, 10, 11, 101)},
			{supervisor, row(11, 1, 11, 900), row(12, 11, 11, 901)},
		}, []int{}},
		"session number given again": {root, nil, [][]proc{
			{supervisor, row(11, 10, 11, 101)},
			{supervisor},
			{supervisor, row(14, 1, 11, 904)},
		}, []int{}},
		"after the supervisor, by session": {Identity{}, []Identity{child}, [][]proc{
			{stranger, row(14, 1, 11, 104)},
		}, []int{14}},
		"older than the session's leader": {Identity{}, []Identity{child}, [][]proc{
			{row(14, 1, 11, 99)},
		}, []int{}},
		"after the supervisor, nobody": {Identity{}, []Identity{child, {}}, [][]proc{
			{stranger, row(1, 0, 1, 1), row(0, 0, 0, 0), row(11, 1, 11, 500)},
		}, []int{}},
		"the supervisor's own session is not the job's": {root, nil, [][]proc{
			{row(10, 5, 5, 100), stranger, row(6, 5, 5, 60)},
		}, []int{}},
	} {
		l := newLineage(c.root, c.seen...)
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
