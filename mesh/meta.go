package mesh

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"unicode/utf8"

	"tugline.dev/tugline/shared/fleet"
)

// MetaMax is how many bytes a node may tell of itself by gossip.
const MetaMax = 512

// metaVersion is written into what this build encodes. A reader takes any version
// from 1 up and ignores what it does not know: a version is raised only for what an
// older reader may safely miss.
const metaVersion = 1

// Meta is what a node tells the others of itself. It is a hint, never the truth: what
// must agree is in the replicated state.
type Meta struct {
	Endpoints []string `json:"e,omitempty"` // host:port of the UDP port, best first, at most 8
	Version   string   `json:"r,omitempty"` // of the program
	Kinds     uint32   `json:"k,omitempty"` // newest command kind it decodes
	DiskFree  uint64   `json:"d,omitempty"` // bytes
	DiskTotal uint64   `json:"t,omitempty"` // bytes
	Applied   uint64   `json:"i,omitempty"` // index of the newest applied command
	Flags     Flags    `json:"f,omitempty"`
}

// Flags say what state a node is in.
type Flags uint32

const (
	FlagDraining Flags = 1 << iota // it is about to stop
	FlagDiskFull                   // it takes no new bytes
	FlagReadOnly                   // it proposes nothing, for its clock or its disk
)

// encodedMeta puts the version in front.
type encodedMeta struct {
	V int `json:"v"`
	Meta
}

// encode gives the bytes for the wire, or says what is too much.
func (m Meta) encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(encodedMeta{V: metaVersion, Meta: m})
	if err != nil {
		return nil, fmt.Errorf("encode what this node tells of itself: %w", err)
	}
	if len(b) > MetaMax {
		return nil, fmt.Errorf("encode what this node tells of itself: %d bytes, at most %d fit; name fewer endpoints: %w", len(b), MetaMax, fleet.TooLarge)
	}
	return b, nil
}

// decodeMeta reads what a peer wrote, of this version or a newer one.
func decodeMeta(b []byte) (Meta, error) {
	if len(b) > MetaMax {
		return Meta{}, fmt.Errorf("read a node's word of itself: %d bytes, at most %d may be: %w", len(b), MetaMax, fleet.TooLarge)
	}
	var m encodedMeta
	if err := json.Unmarshal(b, &m); err != nil {
		return Meta{}, fmt.Errorf("read a node's word of itself: %w: %w", err, fleet.BadRequest)
	}
	if m.V < 1 {
		return Meta{}, fmt.Errorf("read a node's word of itself: version %d: %w", m.V, fleet.BadRequest)
	}
	if len(m.Endpoints) == 0 {
		m.Endpoints = nil
	}
	if err := m.check(); err != nil {
		return Meta{}, err
	}
	return m.Meta, nil
}

func (m Meta) check() error {
	if len(m.Endpoints) > candidates {
		return fmt.Errorf("a node may name %d endpoints, not %d: %w", candidates, len(m.Endpoints), fleet.BadRequest)
	}
	for _, e := range m.Endpoints {
		if host, port, err := net.SplitHostPort(e); err != nil || host == "" || port == "" {
			return fmt.Errorf("endpoint %q is not host:port: %w", e, fleet.BadRequest)
		}
	}
	for _, s := range append(slices.Clone(m.Endpoints), m.Version) {
		if !utf8.ValidString(s) {
			return fmt.Errorf("%q is not UTF-8: %w", s, fleet.BadRequest)
		}
	}
	return nil
}
