package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
)

// machineID tells machines apart without naming one: a digest of what the system
// calls itself, of the host's name where it has no such id.
func machineID() string {
	id := systemID()
	if id == "" {
		id, _ = os.Hostname()
	}
	sum := sha256.Sum256([]byte("tugline machine\x00" + id))
	return hex.EncodeToString(sum[:16])
}
