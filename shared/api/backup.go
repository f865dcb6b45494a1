package api

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// BackupRequest is the body of POST /v1/backup, whose answer is the archive.
type BackupRequest struct {
	Passphrase string `json:"passphrase,omitempty" doc:"encrypts the cluster's keys; absent: they are left out, and after a recovery from it every runner must enrol anew"`
	Output     bool   `json:"output,omitempty" doc:"with recorded output and files"`
}

// Backup is what an archive says of itself, in backup.json.
type Backup struct {
	Version int       `json:"version"`
	Cluster string    `json:"cluster"`
	Epoch   uint64    `json:"epoch"`
	Index   uint64    `json:"index"` // the newest entry in it
	Term    uint64    `json:"term"`
	MadeAt  time.Time `json:"made_at"`
	Node    string    `json:"node"`    // that made it
	Program string    `json:"program"` // version of tugline
	Output  bool      `json:"output"`
	Secrets bool      `json:"secrets"`
}

// Restored is the answer of PUT /v1/restore: what was done, and what was lost.
type Restored struct {
	Backup   Backup           `json:"backup"`
	Epoch    uint64           `json:"epoch"` // raised to
	Index    uint64           `json:"index"` // before: entries after the backup's are undone
	Renew    int              `json:"attempts_to_renew"`
	Returned int              `json:"attempts_returned"` // to the queue
	Lost     []fleet.JobID    `json:"jobs_lost"`         // that the backup does not know, at most 100
	LostJobs int              `json:"jobs_lost_count"`
	Enrol    []fleet.RunnerID `json:"runners_to_enrol"` // that the backup does not know
	Again    []string         `json:"revoked_again"`    // revocations that are younger than the backup
	Streams  int              `json:"streams_restored"`
	Blobs    int              `json:"files_restored"`
}
