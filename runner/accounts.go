package runner

import (
	"context"
	"os"
	"slices"
	"time"

	"tugline.dev/tugline/runner/harness"
)

// accountEvery is how often the agent CLIs' own stores are looked at. What the hub knows
// of accounts decides what keeps work away from here, and what lets it come again.
const accountEvery = 10 * time.Second

// watchAccounts looks for the agent CLIs anew as soon as one has another account.
func (r *Runner) watchAccounts(ctx context.Context) {
	last := harness.Accounts(os.Environ())
	tick := time.NewTicker(accountEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := harness.Accounts(os.Environ()); !slices.Equal(now, last) {
			last = now
			r.log.Info("an agent has another account")
			r.redetect()
		}
	}
}
