package fleet

// Codes of a cluster of hub nodes.
const (
	NodeRemoved Code = "node_removed" // the hub node was removed; its id is never used again
	NodeUnknown Code = "node_unknown" // no such hub node
	StaleEpoch  Code = "stale_epoch"  // the cluster's epoch is another one by now
	OrphansFull Code = "orphans_full" // too many orphans wait for a person
)
