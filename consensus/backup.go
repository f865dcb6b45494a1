package consensus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
)

// A backup is
//
//	"TUGLINE-BACKUP\n", version (4 bytes), index (8), term (8), in version 2 number (8)
//	parts: length (4 bytes, 1 to 1 MiB), bytes of the state machine; length 0 ends them
//	SHA-256 of all that
const (
	backupMagic    = "TUGLINE-BACKUP\n"
	backupVersion  = 1 // the number of the last command is the index
	backupNumbered = 2
	backupPart     = 256 << 10
	backupMaxPart  = 1 << 20
)

// ErrBackup says that what was read is no whole and undamaged backup of a version that
// is known here.
var ErrBackup = errors.New("not a whole backup of a known version")

// Backup describes one.
type Backup struct {
	Index  uint64 // newest entry in it
	Number uint64 // of the newest command in it
	Term   uint64 // of the group when it was made
}

// Backup writes the state as of one moment, which is that of the newest entry applied
// on this node. Applying goes on meanwhile. A backup that is to hold all that was
// acknowledged is made on the leader after VerifyLeader.
func (n *Node) Backup(ctx context.Context, w io.Writer) (Backup, error) {
	select {
	case <-n.stopping:
		return Backup{}, fmt.Errorf("backup: %w", n.refused())
	default:
	}
	v, err := n.fsm.view()
	if err != nil {
		return Backup{}, fmt.Errorf("backup: %w", err)
	}
	b := Backup{Index: v.applied, Number: v.number, Term: n.raft.CurrentTerm()}
	if err := writeBackup(ctx, w, b, v.write); err != nil {
		return Backup{}, fmt.Errorf("backup: %w", err)
	}
	return b, nil
}

func writeBackup(ctx context.Context, w io.Writer, b Backup, write func(io.Writer) error) error {
	sum := sha256.New()
	p := &parts{ctx: ctx, w: io.MultiWriter(w, sum)}
	version := uint32(backupVersion)
	if b.Number != b.Index {
		version = backupNumbered
	}
	head := binary.BigEndian.AppendUint32([]byte(backupMagic), version)
	head = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(head, b.Index), b.Term)
	if version == backupNumbered {
		head = binary.BigEndian.AppendUint64(head, b.Number)
	}
	if _, err := p.w.Write(head); err != nil {
		return err
	}
	err := write(p)
	if err == nil {
		err = p.flush()
	}
	if err == nil {
		_, err = p.w.Write(make([]byte, 4))
	}
	if err == nil {
		_, err = w.Write(sum.Sum(nil))
	}
	return err
}

// parts cuts what is written into parts of a backup.
type parts struct {
	ctx context.Context
	w   io.Writer
	buf []byte
}

func (p *parts) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		take := min(len(b), backupPart-len(p.buf))
		p.buf, b = append(p.buf, b[:take]...), b[take:]
		if len(p.buf) == backupPart {
			if err := p.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (p *parts) flush() error {
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	if len(p.buf) == 0 {
		return nil
	}
	if _, err := p.w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(p.buf)))); err != nil {
		return err
	}
	_, err := p.w.Write(p.buf)
	p.buf = p.buf[:0]
	return err
}

// ReadBackup reads a backup to its end and says whether it is whole; ErrBackup that it
// is not. load, where it is not nil, gets the bytes of the state machine, before it is
// known whether all of them are right.
func ReadBackup(r io.Reader, load func(io.Reader) error) (Backup, error) {
	sum := sha256.New()
	u := &joined{r: r, sum: sum}
	head := make([]byte, len(backupMagic)+20)
	if err := u.read(head); err != nil {
		return Backup{}, err
	}
	rest, ok := bytes.CutPrefix(head, []byte(backupMagic))
	if !ok {
		return Backup{}, ErrBackup
	}
	b := Backup{Index: binary.BigEndian.Uint64(rest[4:]), Term: binary.BigEndian.Uint64(rest[12:])}
	switch binary.BigEndian.Uint32(rest) {
	case backupVersion:
		b.Number = b.Index
	case backupNumbered:
		number := make([]byte, 8)
		if err := u.read(number); err != nil {
			return Backup{}, err
		}
		b.Number = binary.BigEndian.Uint64(number)
	default:
		return Backup{}, ErrBackup
	}
	if load != nil {
		if err := load(u); err != nil {
			return b, err
		}
	}
	if _, err := io.Copy(io.Discard, u); err != nil {
		return b, err
	}
	want := sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want) {
		return b, ErrBackup
	}
	return b, nil
}

// joined reads the parts of a backup as one.
type joined struct {
	r    io.Reader
	sum  hash.Hash
	left uint32 // of the part
	end  bool
}

func (j *joined) read(b []byte) error {
	if _, err := io.ReadFull(j.r, b); err != nil {
		return fmt.Errorf("%w: %w", ErrBackup, err)
	}
	j.sum.Write(b)
	return nil
}

func (j *joined) Read(b []byte) (int, error) {
	if j.left == 0 && !j.end {
		var size [4]byte
		if err := j.read(size[:]); err != nil {
			return 0, err
		}
		j.left = binary.BigEndian.Uint32(size[:])
		if j.end = j.left == 0; j.left > backupMaxPart {
			return 0, ErrBackup
		}
	}
	if j.end {
		return 0, io.EOF
	}
	b = b[:min(len(b), int(j.left))]
	if err := j.read(b); err != nil {
		return 0, err
	}
	j.left -= uint32(len(b))
	return len(b), nil
}
