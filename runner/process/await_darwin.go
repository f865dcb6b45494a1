package process

import (
	"context"
	"time"
)

// awaitEnd is not to be had without a thread for every process that is waited for.
func awaitEnd(context.Context, Identity, time.Duration) bool { return false }
