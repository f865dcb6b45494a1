package consensus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
)

// An entry is stored as decodeLog reads it, with one more field at its end: the CRC-32C of
// its key and of all of the value in front of that field. The number of fields, in the first
// byte, tells such an entry from one of an earlier version, which ends with its sixth: no
// single damaged byte makes one of the other, since what is left over is an error too.

const (
	fieldsSummed = 0x80 | 7
	sumLen       = 9 // of the last field: its name, its type, four bytes
)

var (
	sumHead    = []byte("\xa3Sum\xce")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errSum = fmt.Errorf("its checksum does not match: %w", ErrDamaged)
)

// appendStored appends key and value of an entry, and says where the value begins.
func appendStored(b []byte, l *raft.Log) (_ []byte, value int, err error) {
	from := len(b)
	b = binary.BigEndian.AppendUint64(b, l.Index)
	value = len(b)
	if b, err = appendLog(b, l); err != nil {
		return nil, 0, err
	}
	b[value] = fieldsSummed
	sum := crc32.Checksum(b[from:], castagnoli)
	return binary.BigEndian.AppendUint32(append(b, sumHead...), sum), value, nil
}

// readStored reads what appendStored or an earlier version wrote; l gets memory of its own.
func readStored(k, v []byte, l *raft.Log) error {
	if len(v) > 0 && v[0] == fieldsSummed {
		at := len(v) - sumLen
		if at < 1 || !bytes.Equal(v[at:at+len(sumHead)], sumHead) ||
			crc32.Update(crc32.Checksum(k, castagnoli), castagnoli, v[:at]) != binary.BigEndian.Uint32(v[at+len(sumHead):]) {
			return errSum
		}
		v = v[:at]
	}
	if err := decodeLog(v, l); err != nil {
		return err
	}
	if !bytes.Equal(k, key(l.Index)) {
		return fmt.Errorf("it is entry %d: %w", l.Index, ErrDamaged)
	}
	return nil
}
