// Package fleet holds the words of the mesh that hub and runner share: ids, a
// job with its turns and attempts, the table of legal moves, a runner, evidence
// and verdicts, the framing of recorded output, and the closed set of codes.
// It is pure: it looks at no clock, disk or network, and starts nothing.
package fleet

import (
	"fmt"
	"strconv"
	"strings"
)

// JobID names a job: a ULID in lower case, so ids sort by creation time.
type JobID string

// RunnerID names an enrolled runner for its whole life, across restarts,
// addresses and names: "r-" and a ULID in lower case.
type RunnerID string

// TokenID names an operator token; it is not the secret.
type TokenID string

// Digest is the lower-case hex SHA-256 of a blob.
type Digest string

// Valid says whether d has the form of a digest.
func (d Digest) Valid() bool {
	if len(d) != 64 {
		return false
	}
	for _, c := range []byte(d) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Fence is the authority of one attempt: the cluster epoch and the log's index of
// its assignment. Of two fences the greater is the newer; everything that an
// attempt does is done in the name of its fence and refused under an old one.
type Fence struct {
	Epoch uint64
	Index uint64
}

// String gives the fence as EPOCH-INDEX, the form used in refs, paths and JSON.
func (f Fence) String() string { return string(f.append(make([]byte, 0, 24))) }

func (f Fence) append(b []byte) []byte {
	b = append(strconv.AppendUint(b, f.Epoch, 10), '-')
	return strconv.AppendUint(b, f.Index, 10)
}

// IsZero says whether f is no fence at all.
func (f Fence) IsZero() bool { return f == Fence{} }

// Less says whether f is older than g.
func (f Fence) Less(g Fence) bool {
	if f.Epoch != g.Epoch {
		return f.Epoch < g.Epoch
	}
	return f.Index < g.Index
}

// ParseFence reads the form that String writes.
func ParseFence(s string) (Fence, error) {
	e, i, ok := strings.Cut(s, "-")
	epoch, err1 := strconv.ParseUint(e, 10, 64)
	index, err2 := strconv.ParseUint(i, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return Fence{}, fmt.Errorf("fence %q is not EPOCH-INDEX", s)
	}
	return Fence{epoch, index}, nil
}

// MarshalText and UnmarshalText make a fence a string in JSON.
func (f Fence) MarshalText() ([]byte, error) { return f.append(make([]byte, 0, 24)), nil }

// UnmarshalText reads what MarshalText wrote.
func (f *Fence) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*f = Fence{}
		return nil
	}
	g, err := ParseFence(string(b))
	if err == nil {
		*f = g
	}
	return err
}
