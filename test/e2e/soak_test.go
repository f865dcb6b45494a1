//go:build soak

package e2e

import (
	"testing"
	"time"
)

// TestSoakStorm is TestStormOfKills for long enough to meet what is rare.
func TestSoakStorm(t *testing.T) { storm(t, 4000, 1500*time.Millisecond) }
