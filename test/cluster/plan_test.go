package cluster

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// plan is what an attempt comes to on whichever machine it runs: the same for the same
// fence, so that everybody can tell what its output must be.
type plan struct {
	prepare  time.Duration
	run      time.Duration
	code     int
	output   []byte
	events   []byte
	notes    []string
	artifact []byte
	decline  bool
	acted    bool // where it is refused, it had done something before
	session  bool // and left a session to go on with
	tokens   int64
}

// plans makes them, each once.
type plans struct {
	seed uint64
	mu   sync.Mutex
	made map[fleet.Fence]*plan
}

func (p *plans) of(job fleet.JobID, f fleet.Fence) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == nil {
		p.made = map[fleet.Fence]*plan{}
	}
	if p.made[f] == nil {
		p.made[f] = newPlan(p.seed, job, f)
	}
	return p.made[f]
}

func newPlan(seed uint64, job fleet.JobID, f fleet.Fence) *plan {
	h := fnv.New64a()
	fmt.Fprint(h, job, f)
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	p := &plan{
		prepare: between(r, 20*time.Millisecond, 3*time.Second), run: between(r, 300*time.Millisecond, 15*time.Second),
		decline: r.IntN(25) == 0,
	}
	switch r.IntN(10) {
	case 0:
		p.run = between(r, 20*time.Second, time.Minute)
	case 1:
		p.code = 1
	}
	size := r.IntN(6 << 10)
	if r.IntN(12) == 0 {
		size = r.IntN(100 << 10)
	}
	for len(p.output) < size {
		p.output = appendChunk(p.output, r)
	}
	if r.IntN(3) == 0 {
		for i := range 1 + r.IntN(20) {
			p.events = fmt.Appendf(p.events, "{\"n\":%d,\"x\":%d}\n", i, r.Uint64())
		}
	}
	for i := range r.IntN(4) {
		p.notes = append(p.notes, fmt.Sprintf("note %d of %s", i, f))
	}
	if r.IntN(4) == 0 {
		p.artifact = make([]byte, 1+r.IntN(20<<10))
		for i := range p.artifact {
			p.artifact[i] = byte(r.Uint32())
		}
	}
	p.acted, p.session, p.tokens = r.IntN(4) == 0, r.IntN(2) == 0, r.Int64N(120)
	return p
}

// appendChunk adds one frame of output as a supervisor writes them.
func appendChunk(b []byte, r *rand.Rand) []byte {
	text := make([]byte, 1+r.IntN(400))
	for i := range text {
		text[i] = byte('a' + r.IntN(26))
	}
	b = append(b, byte(1+r.IntN(2)), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	b = binary.BigEndian.AppendUint64(b, r.Uint64()>>24)
	return append(b, text...)
}

// stream gives a stream whole.
func (p *plan) stream(s wire.Stream) []byte {
	if s == wire.StreamEvents {
		return p.events
	}
	return p.output
}

func between(r *rand.Rand, min, max time.Duration) time.Duration {
	return min + time.Duration(r.Int64N(int64(max-min)))
}
