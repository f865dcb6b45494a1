package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An entry of raft holds one command as it was proposed, or a pack of several:
//
//	packMark, number of commands, then each with its length in front
//
// with numbers as unsigned varints. Nodes of before packs take one for an entry of a
// newer version, and stop.
const (
	packMark = 0xf0

	// maxPack bounds the commands of a pack; MaxEntry bounds its bytes.
	maxPack = 256

	// packable is the size up to which a command travels with others, in bytes. For
	// larger ones there is nothing to be saved.
	packable = 32 << 10
)

// errPack says that the bytes behind packMark are no pack.
var errPack = errors.New("a pack of commands is damaged, or of a newer version")

// errMarked refuses a command that would be taken for a pack.
var errMarked = fmt.Errorf("begins with the byte %#x, which is kept for packs", packMark)

// packHead is room for all of a pack but its commands and their lengths.
const packHead = 1 + binary.MaxVarintLen16

// packed is how many bytes a command takes in a pack, at most.
func packed(command []byte) int { return binary.MaxVarintLen32 + len(command) }

func isPack(entry []byte) bool { return len(entry) > 0 && entry[0] == packMark }

// appendPack appends the entry of two commands or more.
func appendPack(b []byte, commands [][]byte) []byte {
	b = appendUint(append(b, packMark), uint64(len(commands)))
	for _, c := range commands {
		b = appendBytes(b, c)
	}
	return b
}

// Commands gives the commands of an entry, which stay parts of it. A pack that is
// damaged or of a form that is not known is an error.
func Commands(entry []byte) ([][]byte, error) {
	if !isPack(entry) {
		return [][]byte{entry}, nil
	}
	c := &cursor{b: entry[1:]}
	n := c.uint()
	if n < 2 || n > maxPack {
		return nil, errPack
	}
	out := make([][]byte, n)
	for i := range out {
		out[i] = c.bytes()
	}
	if c.bad || len(c.b) > 0 {
		return nil, errPack
	}
	return out, nil
}
