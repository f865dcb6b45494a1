package hub

import "fmt"

// NewerError says that a file of a node's data directory has a version that only a newer
// tugline reads. Nothing was changed.
type NewerError struct {
	Path           string
	Version, Known int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s is of version %d, and this tugline reads versions up to %d: use the newer one that wrote it", e.Path, e.Version, e.Known)
}

// checkVersion looks at the version that a file says it has.
func checkVersion(path string, version, known int) error {
	switch {
	case version > known:
		return &NewerError{path, version, known}
	case version < 1:
		return fmt.Errorf("%s is damaged: it says no version; put it back from a backup", path)
	}
	return nil
}
