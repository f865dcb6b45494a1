package durable

import "fmt"

// Newer says that something on the disk is of a format that only a newer version of this
// program knows. It was left as it is.
type Newer struct {
	What   string // for people, such as "the runner's journal"
	Path   string
	Format int
	Known  int    // the newest that this program knows
	More   string // what else there is to do; may be empty
}

func (e *Newer) Error() string {
	return fmt.Sprintf("%s (%s) is of format %d, and this program knows formats up to %d; start the newer version that wrote it. It was left as it is%s",
		e.What, e.Path, e.Format, e.Known, e.More)
}
