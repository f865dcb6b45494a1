package api

import "time"

// Member is one hub node of the cluster.
type Member struct {
	ID        string     `json:"id"`
	Role      string     `json:"role" enum:"voter,learner,joining,removed"`
	Leader    bool       `json:"leader"`
	Self      bool       `json:"self"`          // the node that looked
	URL       string     `json:"url"`           // for people and runners
	Endpoints []string   `json:"endpoints"`     // of its tunnel, UDP
	Endpoint  string     `json:"mesh_endpoint"` // where its tunnel was heard last
	Version   string     `json:"version"`
	Kinds     int        `json:"command_generation"` // the newest commands that it can decode
	Health    string     `json:"health" enum:"ok,unknown,unreachable,disk_full,slow_disk,clock_skew,draining,filling,set_back,removed"`
	Detail    string     `json:"health_detail,omitempty"`
	JoinedAt  time.Time  `json:"joined_at"`
	RemovedAt *time.Time `json:"removed_at,omitempty"`

	LastContact     *int64 `json:"last_contact_ms"` // since it answered; null: it never did
	Applied         uint64 `json:"applied_index"`
	Lag             uint64 `json:"lag"`                    // entries behind the leader
	UnderReplicated int64  `json:"under_replicated_bytes"` // output and files that it lacks
	Replication     bool   `json:"replication_known"`      // that is all of it; else it may lack more
	DiskFree        int64  `json:"disk_free_bytes"`
	DiskFull        bool   `json:"disk_full"`
	ClockOffset     int64  `json:"clock_offset_ms"` // of its clock to that of the node that looked; health judges it by the median of all
	Uptime          string `json:"uptime"`
}

// Whole says whether the node is known to lack no output and no file.
func (m Member) Whole() bool { return m.Replication && m.UnderReplicated == 0 }

// Members is GET /v1/members.
type Members struct {
	Members  []Member `json:"members"`
	Leader   string   `json:"leader"`
	Term     uint64   `json:"term"`
	Index    uint64   `json:"commit_index"`
	SeenBy   string   `json:"seen_by"` // the node that looked: the leader, where there is one
	Warnings []string `json:"warnings"`
}

// Transfer is the body of POST /v1/members/transfer.
type Transfer struct {
	To string `json:"to,omitempty" doc:"id of the node that is to lead; absent: any that can"`
}
