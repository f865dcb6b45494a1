//go:build soak

package e2e

import (
	"testing"
	"time"
)

// TestSoakStorm is the whole of what TestStormOfKills samples.
func TestSoakStorm(t *testing.T) { storm(t, 500, 900*time.Millisecond) }
