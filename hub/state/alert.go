package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-memdb"

	"tugline.dev/tugline/shared/fleet"
)

var (
	_ = register(func() Command { return new(SettleAlert) })
	_ = register(func() Command { return new(RaiseAlert) })
)

// Kinds of alert that come of a machine's faults; others are raised by name.
const (
	AlertDisk      = "low_disk"
	AlertMemory    = "low_memory"
	AlertDocker    = "docker_lost"
	AlertOffline   = "offline"
	AlertRecovered = "recovered"
	AlertRelease   = "release_halted"
	AlertUnserved  = "unserved"
	AlertPressure  = "storage_pressure"
)

// Bounds of an alert, in bytes or entries.
const (
	maxAlertID   = 200
	maxAlertText = 4 << 10
	maxVolumes   = 8
	maxUsage     = 32
)

// RaiseAlert records an alert under an id of the proposer's choice: the same one twice
// is one. With Every it is also no news while the last of its kind for its runner is
// younger than that.
type RaiseAlert struct {
	Alert fleet.Alert   `json:"alert"`
	Every time.Duration `json:"every_ns,omitempty"`
}

func (*RaiseAlert) kind() Kind { return 56 }

func (c *RaiseAlert) apply(t *txn) Result {
	a := c.Alert
	switch {
	case a.ID == "" || len(a.ID) > maxAlertID || a.Kind == "" || len(a.Kind) > maxAlertID || len(a.Name) > maxAlertID || len(a.Runner) > maxAlertID:
		return refuse(fleet.BadRequest, "an alert has an id and a kind of at most %d bytes", maxAlertID)
	case a.Text == "" || len(a.Text) > maxAlertText:
		return refuse(fleet.BadRequest, "an alert has a text of at most %d bytes", maxAlertText)
	case a.Pressure != nil && (len(a.Pressure.Volumes) > maxVolumes || len(a.Pressure.Usage) > maxUsage):
		return refuse(fleet.BadRequest, "an alert names at most %d volumes and %d classes of files", maxVolumes, maxUsage)
	case first[fleet.Alert](t.Txn, tableAlerts, "id", a.ID) != nil:
		return Result{ID: a.ID, Repeated: true}
	}
	if was := (View{t.Txn}).lastAlert(a.Kind, a.Runner); c.Every > 0 && was != nil && t.now().Sub(was.At) < c.Every {
		return Result{ID: was.ID, Repeated: true}
	}
	a.At, a.Delivered, a.Failed, a.Pressure = t.now(), nil, "", cutPressure(a.Pressure)
	t.alert(&a)
	return Result{ID: a.ID}
}

// cutPressure gives what fills a disk with its texts cut, so that no alert is long.
func cutPressure(from *fleet.Pressure) *fleet.Pressure {
	if from == nil {
		return nil
	}
	p := *from
	p.Volumes, p.Usage = slices.Clone(p.Volumes), slices.Clone(p.Usage)
	for i := range p.Volumes {
		v := &p.Volumes[i]
		v.Path, v.Detail = fleet.CutText(v.Path, maxReason), fleet.CutText(v.Detail, maxReason)
	}
	for i := range p.Usage {
		p.Usage[i].Class = fleet.CutText(p.Usage[i].Class, maxAlertID)
	}
	return &p
}

// alert records an alert; the oldest makes room for it.
func (t *txn) alert(a *fleet.Alert) {
	t.insert(tableAlerts, a)
	t.add("alerts", 1)
	for n := t.count("alerts") - fleet.MaxAlerts; n > 0; n-- {
		var oldest *fleet.Alert
		each(t.Txn, tableAlerts, "at", func(o *fleet.Alert) bool { oldest = o; return false })
		t.delete(tableAlerts, oldest)
		t.add("alerts", -1)
	}
	t.changed(Change{What: "alert", Alert: a})
}

// alertID names an alert that comes of the present entry.
func (t *txn) alertID(n int) string { return fmt.Sprintf("%d-%d-%d", t.meta.Epoch, t.index, n) }

// SettleAlert records that an alert was delivered, or why that was given up.
type SettleAlert struct {
	ID     string `json:"id"`
	Failed string `json:"failed,omitempty"`
}

func (*SettleAlert) kind() Kind { return 55 }

func (c *SettleAlert) apply(t *txn) Result {
	was := first[fleet.Alert](t.Txn, tableAlerts, "id", c.ID)
	switch {
	case was == nil:
		return refuse(fleet.NotFound, "there is no alert %s", c.ID)
	case was.Delivered != nil || was.Failed != "":
		return Result{ID: c.ID, Repeated: true}
	}
	a := *was
	if a.Failed = fleet.CutText(c.Failed, maxReason); a.Failed == "" {
		a.Delivered = at(t.now())
	}
	t.insert(tableAlerts, &a)
	t.changed(Change{What: "alert", Alert: &a})
	return Result{ID: c.ID}
}

// Alerts gives the newest n alerts, the newest first.
func (v View) Alerts(n int) []*fleet.Alert {
	var out []*fleet.Alert
	v.alerts(func(a *fleet.Alert) bool {
		if len(out) < n {
			out = append(out, a)
		}
		return len(out) < n
	})
	return out
}

// Alert gives one alert by id.
func (v View) Alert(id string) (*fleet.Alert, bool) {
	a := first[fleet.Alert](v.tx, tableAlerts, "id", id)
	return a, a != nil
}

// lastAlert gives the newest alert of a kind about a runner, or nil.
func (v View) lastAlert(kind string, r fleet.RunnerID) (last *fleet.Alert) {
	v.alerts(func(a *fleet.Alert) bool {
		if a.Kind == kind && a.Runner == r {
			last = a
		}
		return last == nil
	})
	return last
}

// alerts walks the alerts from the newest until f says stop.
func (v View) alerts(f func(*fleet.Alert) bool) {
	it, err := v.tx.GetReverse(tableAlerts, "at")
	if err != nil {
		panic("walk alerts: " + err.Error()) // a schema error
	}
	for row := it.Next(); row != nil; row = it.Next() {
		if !f(row.(*fleet.Alert)) {
			return
		}
	}
}

var alertsTable = []*memdb.IndexSchema{
	idx("id", func(a *fleet.Alert) string { return a.ID }),
	multi("at", func(a *fleet.Alert) string { return order(uint64(a.At.UnixNano()), "") }),
}
