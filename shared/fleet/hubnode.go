package fleet

import "time"

// HubNode is what the cluster remembers of one of its hub nodes. Whether it votes
// and whether it can be reached is not remembered here.
type HubNode struct {
	ID          string    `json:"id"`                      // "n-" and a ULID in lower case; never used again once removed
	MeshKey     []byte    `json:"mesh_key"`                // X25519 public: what the mesh knows it by
	NextMeshKey []byte    `json:"next_mesh_key,omitempty"` // the one it is about to use; both are good
	SealKey     []byte    `json:"seal_key"`                // X25519 public: secrets are sealed to it
	Endpoints   []string  `json:"endpoints,omitempty"`     // HOST:PORT of its mesh, over UDP
	URL         string    `json:"url,omitempty"`           // where people and runners reach it
	Version     string    `json:"version,omitempty"`
	Kinds       uint16    `json:"kinds"` // the newest generation of commands that it can decode
	JoinedAt    time.Time `json:"joined_at,omitzero"`

	RemovedAt  *time.Time `json:"removed_at,omitempty"`
	RemovedWhy string     `json:"removed_why,omitempty"`
}

// Bounds of a hub node's record.
const (
	MaxHubNodes      = 15  // that are not removed
	MaxEndpoints     = 16  // of one node
	MaxHubNodeText   = 512 // bytes of an endpoint, a URL, a version or a reason
	MeshKeyBytes     = 32
	GuestGracePeriod = 24 * time.Hour // after the end of a ticket, for the key that consumed it
)

// Removed says whether the node belongs to the cluster no more.
func (n *HubNode) Removed() bool { return n.RemovedAt != nil }

// What a ticket lets in. A ticket without a role is a runner's.
const (
	TicketRunner = "runner"
	TicketHub    = "hub"
)

// Epoch is one raise of the cluster's epoch, by which everything that was
// authorised before it has to be authorised anew.
type Epoch struct {
	Epoch    uint64    `json:"epoch"`
	At       time.Time `json:"at"`
	Index    uint64    `json:"index"`    // of the entry that raised it
	Cause    string    `json:"cause"`    // e.g. recover, restore
	Returned int       `json:"returned"` // unaccepted attempts that went back to the queue
	Open     int       `json:"open"`     // accepted attempts that were still open
}
