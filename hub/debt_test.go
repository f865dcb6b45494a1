package hub

import (
	"testing"
	"time"

	"tugline.dev/tugline/hub/peer"
	"tugline.dev/tugline/hub/replica"
)

// What a node lacks is said only where somebody knows it: the leader by its own count,
// and whoever is asked while there is none by the node's word.
func TestWhatANodeLacksIsSaidOnlyWhereItIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		leads  bool
		heard  bool
		own    int64
		counts replica.Debt
		want   replica.Debt
	}{
		"the leader knows":                  {true, true, 0, replica.Debt{Bytes: 7, Known: true}, replica.Debt{Bytes: 7, Known: true}},
		"the leader knows that it is whole": {true, true, 9, replica.Debt{Known: true}, replica.Debt{Known: true}},
		"the leader has yet to compare":     {true, true, 0, replica.Debt{Bytes: 3}, replica.Debt{}},
		"so much at least":                  {true, true, 900, replica.Debt{}, replica.Debt{Bytes: 900}},
		"nor does the node know":            {true, true, unknownDebt, replica.Debt{}, replica.Debt{}},
		"no leader, its own word":           {false, true, 900, replica.Debt{}, replica.Debt{Bytes: 900, Known: true}},
		"no leader, it does not know":       {false, true, unknownDebt, replica.Debt{}, replica.Debt{}},
		"it was never heard":                {false, false, 0, replica.Debt{}, replica.Debt{}},
	} {
		h := &Hub{}
		h.leading.Store(c.leads)
		s := peer.Sample{Facts: peer.Facts{Debt: c.own}}
		if c.heard {
			s.Heard = time.Now()
		}
		if got := h.debtOf(s, c.counts); got.Bytes != c.want.Bytes || got.Known != c.want.Known {
			t.Errorf("%s: %+v; want %+v", name, got, c.want)
		}
	}
}
