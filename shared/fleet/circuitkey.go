package fleet

import (
	"crypto/sha256"
	"encoding/hex"
)

// CircuitKey gives a short name of a circuit for people: ten hex digits of its id's hash.
func CircuitKey(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:5])
}
