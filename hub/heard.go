package hub

import (
	"errors"
	"fmt"

	"tugline.dev/tugline/consensus"
)

// ErrReplace says that this node must not be started again as it is: what lies in its data
// directory is not what the other nodes count on. Its text says what to do.
var ErrReplace = errors.New("this node must not run as it is")

// whetherReplaced says of an end of the log, whoever came upon it first, what to do about it,
// where a new start does not help.
func (h *Hub) whetherReplaced(err error) error {
	var fatal *consensus.FatalError
	if !errors.As(err, &fatal) {
		return err
	}
	replace := fmt.Sprintf("replace this node with `tugline hub ticket --role hub --replace %s` and join with an empty data directory", h.id.Node)
	switch why := fatal.Err; {
	case errors.Is(why, consensus.ErrSetBack):
		return fmt.Errorf("%w: %w; if the newer directory still exists, put it back; else %s", ErrReplace, why, replace)
	case errors.Is(why, consensus.ErrTwin):
		return fmt.Errorf("%w: %w; see to it that one of the two is never started again; where that is this one, remove its directory", ErrReplace, why)
	case errors.Is(why, consensus.ErrForked), errors.Is(why, consensus.ErrLostDisk):
		return fmt.Errorf("%w: %w; %s", ErrReplace, fatal, replace)
	case errors.Is(why, consensus.ErrDamaged):
		return fmt.Errorf("%w: %w; where other nodes vote, %s; a hub that is alone is made anew of a backup, with `tugline hub recover --from-backup FILE` in an empty directory", ErrReplace, fatal, replace)
	}
	return err
}
