package replica

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// full is a message with every field set.
func full(k kind, reply bool) *message {
	return &message{
		Kind: k, ID: 1 << 40, Reply: reply, Promised: Ballot{1, 2, 3},
		Ballot: Ballot{1, 7, 0}, Key: key(1), Stamp: Ballot{1, 7, 2}, Prior: stamp{Ballot{1, 6, 0}, true}, Fill: true,
		Floor: 5, Offset: 1 << 35, Length: version, Digest: digestOf("d"), Bucket: 200, After: "after", Node: "n-1",
		Keys: []spool.Key{key(1), {Job: "j", Fence: fleet.Fence{Epoch: 2, Index: 3}, Name: spool.Events}},
		Data: []byte("data"), Size: 9, Sealed: true, More: true,
		Holdings: []holding{{Key: key(2), Stamp: stamp{Ballot{1, 1, 1}, false}, Size: 3, Sealed: true, Digest: digestOf("x")}, {Key: key(3)}},
		Blobs:    []blobInfo{{digestOf("b"), 12}}, Sums: []uint64{1, 1 << 63},
		Status: status{Full: true, Known: true, Lacking: 4, Begun: 5, Ended: 6},
	}
}

// only leaves in a message what its kind carries.
func only(m *message) *message {
	has := requests[m.Kind]
	if m.Reply {
		has = replies[m.Kind]
	}
	if m.Code != "" {
		has = fSize
	}
	out := &message{Kind: m.Kind, ID: m.ID, Reply: m.Reply, Code: m.Code, Text: m.Text}
	if m.Reply {
		out.Promised = m.Promised
	}
	for f, set := range map[field]func(){
		fBallot: func() { out.Ballot = m.Ballot }, fKey: func() { out.Key = m.Key }, fStamp: func() { out.Stamp = m.Stamp },
		fPrior: func() { out.Prior = m.Prior }, fFill: func() { out.Fill = m.Fill }, fFloor: func() { out.Floor = m.Floor },
		fOffset: func() { out.Offset = m.Offset }, fLength: func() { out.Length = m.Length }, fDigest: func() { out.Digest = m.Digest },
		fBucket: func() { out.Bucket = m.Bucket }, fAfter: func() { out.After = m.After }, fNode: func() { out.Node = m.Node },
		fKeys: func() { out.Keys = m.Keys }, fData: func() { out.Data = m.Data },
		fSize: func() { out.Size = m.Size }, fSealed: func() { out.Sealed = m.Sealed }, fMore: func() { out.More = m.More },
		fHoldings: func() { out.Holdings = m.Holdings }, fBlobInfos: func() { out.Blobs = m.Blobs }, fSums: func() { out.Sums = m.Sums },
		fStatus: func() { out.Status = m.Status },
	} {
		if has&f != 0 {
			set()
		}
	}
	return out
}

func TestMessages(t *testing.T) {
	for k := kindHello; k < kinds; k++ {
		refused := full(k, true)
		refused.Code, refused.Text = fleet.SpoolGap, "a gap"
		for _, m := range []*message{full(k, false), full(k, true), refused} {
			b := m.append([]byte("before"))[len("before"):]
			got, err := readFrame(bytes.NewReader(b), m.Reply)
			if err != nil {
				t.Errorf("kind %d, answer %v: %v", k, m.Reply, err)
				continue
			}
			if d := cmp.Diff(only(m), got); d != "" {
				t.Errorf("kind %d, answer %v comes back otherwise (-want +got):\n%s", k, m.Reply, d)
			}
			for n := range len(b) {
				if _, err := readFrame(bytes.NewReader(b[:n]), m.Reply); err == nil {
					t.Errorf("kind %d: %d of %d bytes pass for the whole", k, n, len(b))
				}
			}
			if _, err := parse(append(bytes.Clone(b[4:]), 0), m.Reply); err == nil {
				t.Errorf("kind %d: a byte too many passes", k)
			}
		}
	}
	m := &message{Kind: kindAppend, Key: key(1), Data: make([]byte, maxChunk)}
	m.Key.Job = fleet.JobID(strings.Repeat("j", 64))
	if n := len(m.append(nil)); n > maxFrame+4 {
		t.Errorf("the largest chunk makes a frame of %d bytes, where %d is the most", n, maxFrame)
	}
	list := &message{Kind: kindStreams, Reply: true}
	for range maxEntries {
		list.Holdings = append(list.Holdings, holding{Key: m.Key, Stamp: stamp{Ballot{1 << 63, 1 << 63, 1 << 63}, true}, Size: 1 << 62, Sealed: true, Digest: digestOf("x")})
	}
	if n := len(list.append(nil)); n > maxFrame+4 {
		t.Errorf("the largest list makes a frame of %d bytes, where %d is the most", n, maxFrame)
	}
	if _, err := readFrame(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff, 1}), false); err == nil {
		t.Error("a frame of 4 GiB passes")
	}
}

// FuzzParse: no bytes take more memory than they are, and what can be read is
// written the same.
func FuzzParse(f *testing.F) {
	for k := kindHello; k < kinds; k++ {
		for _, reply := range []bool{false, true} {
			f.Add(full(k, reply).append(nil)[4:], reply)
		}
	}
	refused := &message{Kind: kindAppend, Reply: true, Code: fleet.DiskFull, Text: "full", Size: 7}
	f.Add(refused.append(nil)[4:], true)
	f.Fuzz(func(t *testing.T, b []byte, reply bool) {
		m, err := parse(b, reply)
		if err != nil {
			return
		}
		if m.Code != "" && m.Text != fleet.CutText(m.Text, maxText) {
			return // it is written as text
		}
		if got := m.append(nil)[4:]; !bytes.Equal(got, b) {
			t.Errorf("%x is written as %x", b, got)
		}
	})
}
