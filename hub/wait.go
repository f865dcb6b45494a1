package hub

import (
	"context"
	"time"
)

// poke leaves a word; words that come while one waits are one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// awaitEvery tries until that goes well or ctx ends, and gives the last try's error.
func awaitEvery(ctx context.Context, every time.Duration, try func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
