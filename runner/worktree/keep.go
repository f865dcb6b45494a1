package worktree

import (
	"fmt"
	"time"
)

// Keeps says for how long what is kept here stays; below zero is without limit.
type Keeps struct {
	Workspace time.Duration // of an ended job, from its last use
	Rescue    time.Duration // what was saved beside a job's branch, from then on; a workspace stays as long
	Cache     time.Duration // of a repository that no job uses
}

// An Action is what is done with a workspace.
type Action string

// The actions. One that looks unsafe is never taken: what is not proved is kept.
const (
	Keep   Action = "keep"
	Save   Action = "save"   // what is not committed goes under a rescue ref
	Delete Action = "delete" // all of it is proved to be elsewhere
	Look   Action = "look"   // kept, and somebody has to look: nothing can be proved
)

// Evidence is what the records and git say of one workspace.
type Evidence struct {
	Busy      bool      // an attempt has it, or is going to
	Half      bool      // it was never finished: no agent has run in it
	Gone      bool      // its directory is not there any more
	LastUse   time.Time // by an attempt, or by git for whoever works there
	Unclear   string    // why nothing can be proved of it
	Inner     string    // a repository inside of it whose history may be nowhere else
	Own       int       // commits that neither the remote nor the hub is known to have
	Dirty     bool      // it has files beyond its commit
	Unsaved   int       // files of these that are too large to be saved, can't be read, or have names that git refuses
	UnsavedOf int64     // bytes of them
	Rescue    string    // the ref under which exactly these files are
	RescuedAt time.Time
}

// A Decision is what is done with a workspace, why, and until when it stays if nothing
// changes; no time is without limit.
type Decision struct {
	Do    Action
	Why   string
	Until time.Time
}

// Decide says what is done with a workspace. It is total. Its order is its meaning: what runs is never looked into, what
// is young stays, what can't be proved stays for a person, files are saved before anything else is asked, and only what
// is clean and published, or saved for long enough and published, is deleted.
func Decide(e Evidence, k Keeps, now time.Time) Decision {
	expires := e.LastUse.Add(k.Workspace)
	switch {
	case e.Busy:
		return Decision{Do: Keep, Why: "a job works in it, or is about to"}
	case e.Gone:
		return Decision{Do: Delete, Why: "its directory is gone"}
	case k.Workspace < 0:
		return Decision{Do: Keep, Why: "the owner keeps workspaces without limit"}
	case now.Before(expires):
		return Decision{Do: Keep, Why: "its last use is not long ago", Until: expires}
	case e.Half:
		return Decision{Do: Delete, Why: "it was never finished, and no agent ran in it"}
	case e.Unclear != "":
		return Decision{Do: Look, Why: e.Unclear}
	case e.Unsaved > 0:
		return Decision{Do: Keep, Why: fmt.Sprintf("%d files with %d bytes are too large to be saved elsewhere, can't be read, or have names that git refuses", e.Unsaved, e.UnsavedOf)}
	case e.Dirty && e.Rescue == "":
		return Decision{Do: Save, Why: "it has files that are not committed"}
	case e.Inner != "":
		return Decision{Do: Keep, Why: e.Inner}
	case e.Own > 0:
		return Decision{Do: Keep, Why: fmt.Sprintf("%d commits of it are neither with the remote nor at the hub", e.Own)}
	case e.Dirty && k.Rescue < 0:
		return Decision{Do: Keep, Why: "its files are saved as " + e.Rescue + ", and the owner keeps them here without limit"}
	case e.Dirty && now.Before(e.RescuedAt.Add(k.Rescue)):
		return Decision{Do: Keep, Why: "its files are saved as " + e.Rescue, Until: e.RescuedAt.Add(k.Rescue)}
	case e.Dirty:
		return Decision{Do: Delete, Why: "its files are saved as " + e.Rescue + ", its commits are published"}
	}
	return Decision{Do: Delete, Why: "it is clean, and its commits are published"}
}
