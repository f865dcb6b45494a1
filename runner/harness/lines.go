package harness

import "bytes"

const (
	// maxLine bounds one line of a CLI's stream in bytes. Tool results of some hundred KiB are seen in real
	// streams; a line beyond the bound is passed over and said so.
	maxLine = 1 << 20
	// keepBuffer is the size up to which a line's buffer is kept for the next.
	keepBuffer = 64 << 10
	// overlongHead is how much is kept of a line that is passed over.
	overlongHead = 2 << 10
)

// lineBuffer joins pieces of a stream into lines without their ends.
type lineBuffer struct {
	limit int // bytes kept of a line; 0 is maxLine
	buf   []byte
	total int64 // bytes of the line so far, those beyond the bound too
}

// feed takes a piece and calls line for every line that ends in it. A line is valid during the call only; total
// is its whole length, which is above the limit where the line was cut.
func (b *lineBuffer) feed(p []byte, line func(l []byte, total int64)) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			b.add(p)
			return
		}
		if b.total == 0 && i <= b.max() {
			line(p[:i], int64(i))
		} else {
			b.add(p[:i])
			b.flush(line)
		}
		p = p[i+1:]
	}
}

func (b *lineBuffer) max() int {
	if b.limit > 0 {
		return b.limit
	}
	return maxLine
}

func (b *lineBuffer) add(p []byte) {
	b.total += int64(len(p))
	room := b.max() - len(b.buf)
	b.buf = append(b.buf, p[:min(room, len(p))]...)
}

// flush gives what there is of an unfinished line.
func (b *lineBuffer) flush(line func(l []byte, total int64)) {
	if b.total > 0 {
		line(b.buf, b.total)
	}
	b.drop()
}

// drop forgets an unfinished line.
func (b *lineBuffer) drop() {
	b.total = 0
	b.buf = b.buf[:0]
	if cap(b.buf) > keepBuffer {
		b.buf = nil
	}
}
