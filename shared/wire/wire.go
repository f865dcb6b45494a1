// Package wire is the contract between hub and runner: the messages, the frames
// they travel in, and the keys, MACs and signatures that protect them. Whatever
// was received is verified as the bytes that came, before anything is decoded;
// every decoder is bounded. The functions are pure: randomness and the present
// time are arguments. PROTOCOL.md, one folder up, describes the same contract for
// people and carries test vectors for it.
package wire

// Version is the protocol version that this code speaks. A hub speaks the version
// of runners one release older and newer.
//
// History, one line a version:
//
//	1  challenge, hello, welcome; sealed frames; desired sets; signed orders and results
const Version = 1

// Versions lists all versions that this code speaks, newest first.
var Versions = []int{Version}

// Negotiate gives the greatest version that both sides speak.
func Negotiate(theirs []int) (int, bool) {
	best, ok := 0, false
	for _, ours := range Versions {
		for _, v := range theirs {
			if v == ours && v > best {
				best, ok = v, true
			}
		}
	}
	return best, ok
}
