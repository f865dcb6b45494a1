//go:build bench

package hub

import (
	"context"

	"tugline.dev/tugline/hub/state"
)

// Entries is the log as the node's own parts use it.
type Entries interface {
	View() state.View
	Propose(context.Context, state.Command) (state.Result, error)
	ProposeAs(context.Context, state.Head, state.Command) (state.Result, error)
}

// Entries gives the node's log to figures that go around the network.
func (h *Hub) Entries() Entries { return h.entries }
