package hub

import (
	"errors"
	"fmt"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/shared/fleet"
)

// notTaken says to whoever asked why the log took nothing.
func (l *log) notTaken(err error) error {
	said := "the hub cannot take this now; try again in a moment"
	switch {
	case errors.Is(err, consensus.ErrHandingOver):
		said = "leadership is being handed over; try again"
	case errors.Is(err, consensus.ErrClosed):
		said = "this hub node is stopping; try again in a moment, or ask another node"
	case errors.Is(err, consensus.ErrNotLeader):
		said = "no hub node leads now; try again in a moment; `tugline hub members` says which ones are away"
		if id := l.node.Leader(); id != "" {
			said = fmt.Sprintf("leadership went to hub node %s just now; try again", id)
		}
	}
	return fmt.Errorf("%w: %w", fleet.Say(fleet.Unavailable, "%s", said), err)
}
