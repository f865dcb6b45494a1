package hub

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"tugline.dev/tugline/hub/peer"
	"tugline.dev/tugline/shared/fleet"
)

// keyCall bounds the handing of a key to one node, and the wait for its word that it
// knows one.
const keyCall = 5 * time.Second

// away says that a node which must have a new key does not answer, or nil. What the
// leader knows of it already is known at once: whoever is asked for nothing is not
// waited for.
func (h *Hub) away(id string) error {
	if h.peers == nil || id == h.id.Node || !h.leading.Load() {
		return nil
	}
	for _, s := range h.peers.Samples() {
		if s.ID == id && s.Err != nil && !errors.Is(s.Err, peer.ErrNotAsked) && (s.Heard.IsZero() || time.Since(s.Heard) > alive) {
			return errAway(id)
		}
	}
	return nil
}

func errAway(id string) error {
	return fmt.Errorf("node %s must have the new key and does not answer; bring it back, or take it out with `tugline hub remove %s`: %w", id, id, fleet.Conflict)
}

// notTakenBy says why a node that was called has not the new key. It keeps no code of
// the cause: it is not this hub that cannot be reached.
func notTakenBy(id string, err error) error {
	if !peer.Answered(err) {
		return errAway(id)
	}
	var code fleet.Code
	errors.As(err, &code)
	return fmt.Errorf("node %s must have the new key and does not take it (%s); mend that, or take it out with `tugline hub remove %s`: %w", id, strings.TrimSuffix(err.Error(), ": "+string(code)), id, fleet.Conflict)
}

// inOneLine joins what was wrong with several nodes, each said with the code.
func inOneLine(failed []error) error {
	var said []string
	for _, err := range failed {
		if err != nil {
			said = append(said, strings.TrimSuffix(err.Error(), ": "+string(fleet.Conflict)))
		}
	}
	if said == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", strings.Join(said, "; "), fleet.Conflict)
}
