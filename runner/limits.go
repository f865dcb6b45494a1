package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/shared/fleet"
)

// limitsVersion is that of D/limits.json.
const limitsVersion = 1

// limitsFile is what the hub last said about this runner's automation. Without it a
// runner takes none.
type limitsFile struct {
	Version int          `json:"version"`
	Limits  fleet.Limits `json:"limits"`
}

func (r *Runner) limitsPath() string { return filepath.Join(r.cfg.Dir, "limits.json") }

// loadLimits takes up what the hub said in an earlier life. A file that can't be read,
// or is of another version, says nothing.
func (r *Runner) loadLimits() {
	f, err := readLimits(r.limitsPath())
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.told = &f
	case errors.Is(err, fs.ErrNotExist):
		r.told = nil
	default:
		r.told = nil
		r.log.Warn("the limits of this runner can't be read; it takes no automation until the hub has told them", "err", err)
	}
}

func readLimits(path string) (fleet.Limits, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return fleet.Limits{}, err
	}
	var f limitsFile
	if err := json.Unmarshal(b, &f); err != nil {
		return fleet.Limits{}, fmt.Errorf("read %s: %w", path, err)
	}
	if f.Version != limitsVersion {
		return fleet.Limits{}, fmt.Errorf("read %s: version %d, this program knows %d", path, f.Version, limitsVersion)
	}
	return sane(f.Limits), nil
}

// sane keeps limits within what they may be, whoever wrote them.
func sane(l fleet.Limits) fleet.Limits {
	l.Automation = max(0, min(l.Automation, fleet.MaxAutomation))
	l.Floors.Select, l.Floors.Start = max(l.Floors.Select, 0), max(l.Floors.Start, 0)
	return l
}

// takeLimits keeps what the hub says. It holds at once; that it could not be written is
// told, and a restart then goes by what was there before.
func (r *Runner) takeLimits(l fleet.Limits) {
	l = sane(l)
	r.mu.Lock()
	same := r.told != nil && *r.told == l
	r.told = &l
	r.mu.Unlock()
	if same {
		return
	}
	r.log.Info("limits for automation", "slots", l.Automation, "floor_select", l.Floors.Select, "floor_start", l.Floors.Start)
	b, err := json.Marshal(limitsFile{Version: limitsVersion, Limits: l})
	if err == nil {
		err = durable.Replace(r.limitsPath(), append(b, '\n'), 0o600)
	}
	if err != nil {
		r.log.Warn("the limits of this runner can't be kept", "err", err)
		r.trouble(err)
	}
	r.changed()
}

// limits gives what the hub last said; false is that it never said anything.
func (r *Runner) limits() (fleet.Limits, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		return fleet.Limits{}, false
	}
	return *r.told, true
}

// floors gives what must be free for the work of automations: of what the hub and the
// owner want the higher.
func (r *Runner) floors() fleet.Floors {
	f, ever := r.limits()
	if !ever {
		f.Floors = fleet.Floors{Select: fleet.DefaultSelectFloor, Start: fleet.DefaultStartFloor}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.owner.Floors
	return fleet.Floors{Select: max(f.Floors.Select, int64(own.Select)), Start: max(f.Floors.Start, int64(own.Start))}
}
