//go:build bench

package consensus

import (
	"io"

	"github.com/hashicorp/raft"
)

// Store is what a node keeps its log in.
type Store interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// OpenStore opens one by itself, for figures that hold a node against raft alone.
func OpenStore(path string) (Store, error) { return openBolt(path) }
