package cluster

import (
	"context"
	"encoding/json"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// book is what a simulated runner journals.
type book struct {
	ID       string
	Count    uint64
	Seq      uint64 // of the newest item of the outbox
	Epoch    uint64 // the greatest desired set seen
	Term     uint64
	Index    uint64
	Orders   map[string]bool // assignments that were taken on
	Attempts []*record       // oldest first
	Outbox   []wire.ReportItem
	Limits   *fleet.Limits // as a hub told last
}

// record is what is known of an attempt.
type record struct {
	Job       fleet.JobID
	Fence     fleet.Fence
	Rerun     bool // the job runs again when this attempt is lost
	Automated bool
	Docker    bool   // it needs Docker
	Harness   string // of an agent
	Model     string
	Responded bool // that is in the outbox or was acknowledged
	Progress  journal.Progress
	Asked     bool // the accept is in the outbox or was acknowledged
	Notes     int  // that are in the outbox or were acknowledged
	Origin    wire.Origin
}

func (b *book) find(f fleet.Fence) *record {
	for _, r := range b.Attempts {
		if r.Fence == f {
			return r
		}
	}
	return nil
}

// owes says whether the outbox holds something about an attempt.
func (b *book) owes(f fleet.Fence) bool {
	for _, it := range b.Outbox {
		if it.Fence == f {
			return true
		}
	}
	return false
}

// put adds an item to the outbox.
func (b *book) put(it wire.ReportItem) {
	b.Seq++
	it.Seq = b.Seq
	b.Outbox = append(b.Outbox, it)
}

// read gives the journal as it is on the machine's disk, or a new one.
func (m *machine) read() *book {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := &book{Orders: map[string]bool{}}
	if m.book == nil {
		b.ID = m.id + "-" + time.Now().Format("150405.000")
		return b
	}
	if err := json.Unmarshal(m.book, b); err != nil {
		m.w.t.Errorf("read the journal of %s: %v", m.id, err)
	}
	return b
}

// sync writes the journal and waits until it is durable. Where the runner dies
// meanwhile it may be so or not, and sync says that it is not known.
func (m *machine) sync(ctx context.Context, b *book) bool {
	b.Count++
	text, err := json.Marshal(b)
	if err != nil {
		m.w.t.Errorf("write the journal of %s: %v", m.id, err)
		return false
	}
	slow := m.between(200*time.Microsecond, 3*time.Millisecond)
	if m.chance(200) == 0 {
		slow = m.between(50*time.Millisecond, 500*time.Millisecond)
	}
	select {
	case <-time.After(slow):
		m.mu.Lock()
		m.book = text
		m.mu.Unlock()
		return ctx.Err() == nil
	case <-ctx.Done():
		if m.chance(2) == 0 {
			m.mu.Lock()
			m.book = text
			m.mu.Unlock()
		}
		return false
	}
}
