package state

import (
	"slices"

	"tugline.dev/tugline/shared/fleet"
)

const tableProvisions = "provisions"

var (
	_ = register(func() Command { return new(QueueProvision) })
	_ = register(func() Command { return new(DeliverProvision) })
	_ = register(func() Command { return new(EndProvision) })
	_ = register(func() Command { return new(CancelProvision) })
)

// provisionsGeneration is that of installations on runners, and of the settings about
// them: what a setting has new runners given is in the entry that enrols them.
const provisionsGeneration = releasesGeneration

// QueueProvision asks for a program to be installed on a runner. Who asks for the same
// again while it waits gets the asking that is there.
type QueueProvision struct {
	ID           string         `json:"id"`
	Runner       fleet.RunnerID `json:"runner"`
	What         string         `json:"what"`
	Version      string         `json:"version,omitempty"`
	Credentials  []string       `json:"credentials,omitempty"` // names
	PreserveAuth bool           `json:"preserve_auth,omitempty"`
}

func (*QueueProvision) kind() Kind { return 65 }

func (c *QueueProvision) apply(t *txn) Result {
	r, bad := t.editRunner(c.Runner)
	if r == nil {
		return bad
	}
	if c.ID == "" || len(c.ID) > fleet.MaxProvisionID {
		return refuse(fleet.BadRequest, "an installation has an id of up to %d bytes", fleet.MaxProvisionID)
	}
	if wrong := fleet.CheckProvision(c.What, c.Version, c.Credentials, c.PreserveAuth); wrong != "" {
		return refuse(fleet.BadRequest, "%s", wrong)
	}
	if fleet.ProvisioningOff(t.meta.Settings) {
		return refuse(fleet.Forbidden, "provisioning is switched off in this cluster; `tugline hub set provisioning \"\"` allows it again")
	}
	if t.provision(c.ID) != nil {
		return refuse(fleet.Conflict, "there is an installation %s already", c.ID)
	}
	names := slices.Sorted(slices.Values(c.Credentials))
	for _, p := range (View{t.Txn}).ProvisionsOf(r.ID) {
		if !p.Open() || p.What != c.What {
			continue
		}
		same := p.Version == c.Version && p.PreserveAuth == c.PreserveAuth && slices.Equal(p.Credentials, names)
		if same && p.State == fleet.ProvisionQueued {
			return Result{ID: p.ID, Repeated: true}
		}
		return refuse(fleet.Conflict, "%s is being installed on %s already (%s, %s); wait for its end, or cancel it with `tugline runner provision %s --cancel %s`", c.What, r.Name, p.ID, p.State, r.Name, p.ID)
	}
	return t.queueProvision(&fleet.Provision{
		ID: c.ID, Runner: r.ID, What: c.What, Version: c.Version, Credentials: names, PreserveAuth: c.PreserveAuth, AskedBy: t.head.Actor,
	})
}

// queueProvision adds a record; the oldest ended ones make room.
func (t *txn) queueProvision(p *fleet.Provision) Result {
	all := (View{t.Txn}).ProvisionsOf(p.Runner)
	for i := len(all) - 1; i >= 0 && len(all) >= fleet.MaxProvisions; i-- {
		if !all[i].Open() {
			t.delete(tableProvisions, all[i])
			all = slices.Delete(all, i, i+1)
		}
	}
	p.State, p.AskedAt = fleet.ProvisionQueued, t.now()
	t.putProvision(p)
	return Result{ID: p.ID}
}

// provisionNew asks once for what the cluster gives to every new runner.
func (t *txn) provisionNew(r *fleet.Runner) {
	list, ok := fleet.ParseAutoProvision(t.meta.Settings[fleet.SettingAutoProvision])
	if !ok || fleet.ProvisioningOff(t.meta.Settings) {
		return
	}
	for _, what := range list {
		t.queueProvision(&fleet.Provision{ID: "auto-" + string(r.ID) + "-" + what, Runner: r.ID, What: what, AskedBy: "auto_provision"})
	}
}

// DeliverProvision records that the runner has taken an installation on.
type DeliverProvision struct {
	Runner fleet.RunnerID `json:"runner"`
	ID     string         `json:"id"`
}

func (*DeliverProvision) kind() Kind { return 66 }

func (c *DeliverProvision) apply(t *txn) Result {
	p, bad := t.editProvision(c.Runner, c.ID)
	switch {
	case p == nil:
		return bad
	case p.State == fleet.ProvisionDelivered:
		return Result{ID: p.ID, Repeated: true}
	case p.State != fleet.ProvisionQueued:
		return refuse(fleet.Conflict, "the installation is %s", p.State)
	}
	p.State, p.DeliveredAt = fleet.ProvisionDelivered, at(t.now())
	t.putProvision(p)
	return Result{ID: p.ID}
}

// EndProvision records the outcome of an installation as its runner tells it.
type EndProvision struct {
	Runner    fleet.RunnerID `json:"runner"`
	ID        string         `json:"id"`
	Installed string         `json:"installed,omitempty"` // of one that succeeded
	Class     string         `json:"class,omitempty"`     // of one that failed
	Detail    string         `json:"detail,omitempty"`
}

func (*EndProvision) kind() Kind { return 67 }

func (c *EndProvision) apply(t *txn) Result {
	p, bad := t.editProvision(c.Runner, c.ID)
	if p == nil {
		return bad
	}
	if c.Class != "" && !slices.Contains(fleet.ProvisionClasses, c.Class) {
		return refuse(fleet.BadRequest, "installations do not fail by %q", fleet.CutText(c.Class, 80))
	}
	end := fleet.ProvisionSucceeded
	if c.Class != "" {
		end = fleet.ProvisionFailed
	}
	switch {
	case p.State == end:
		return Result{ID: p.ID, Repeated: true}
	case !p.Open():
		return refuse(fleet.Conflict, "the installation is %s", p.State)
	}
	p.State, p.EndedAt, p.Class = end, at(t.now()), c.Class
	p.Installed, p.Detail = fleet.CutText(c.Installed, 80), fleet.CutText(c.Detail, fleet.MaxDetail)
	t.putProvision(p)
	return Result{ID: p.ID}
}

// CancelProvision takes an asking back that no runner has taken on yet.
type CancelProvision struct {
	Runner fleet.RunnerID `json:"runner"`
	ID     string         `json:"id"`
}

func (*CancelProvision) kind() Kind { return 68 }

func (c *CancelProvision) apply(t *txn) Result {
	p, bad := t.editProvision(c.Runner, c.ID)
	switch {
	case p == nil:
		return bad
	case p.State == fleet.ProvisionCancelled:
		return Result{ID: p.ID, Repeated: true}
	case p.State != fleet.ProvisionQueued:
		return refuse(fleet.Conflict, "the installation is %s; only one that no runner has taken on can be cancelled", p.State)
	}
	p.State, p.EndedAt = fleet.ProvisionCancelled, at(t.now())
	t.putProvision(p)
	return Result{ID: p.ID}
}

func (t *txn) provision(id string) *fleet.Provision {
	return first[fleet.Provision](t.Txn, tableProvisions, "id", id)
}

// editProvision gives a copy of a record of a runner that the command must put.
func (t *txn) editProvision(r fleet.RunnerID, id string) (*fleet.Provision, Result) {
	p := t.provision(id)
	if p == nil || p.Runner != r {
		return nil, refuse(fleet.NotFound, "there is no installation %s on that runner", fleet.CutText(id, 80))
	}
	n := *p
	return &n, Result{}
}

func (t *txn) putProvision(p *fleet.Provision) {
	t.insert(tableProvisions, p)
	t.changed(Change{What: "provision"})
}

// forgetProvisions drops the records of a runner that is removed.
func (t *txn) forgetProvisions(r fleet.RunnerID) {
	for _, p := range (View{t.Txn}).ProvisionsOf(r) {
		t.delete(tableProvisions, p)
	}
}

// ProvisionsOf gives the installations of a runner, the newest first.
func (v View) ProvisionsOf(r fleet.RunnerID) []*fleet.Provision {
	var out []*fleet.Provision
	each(v.tx, tableProvisions, "runner", func(p *fleet.Provision) bool { out = append(out, p); return true }, string(r))
	slices.SortStableFunc(out, func(a, b *fleet.Provision) int { return b.AskedAt.Compare(a.AskedAt) })
	return out
}

// Provision gives one installation.
func (v View) Provision(id string) (*fleet.Provision, bool) {
	p := first[fleet.Provision](v.tx, tableProvisions, "id", id)
	return p, p != nil
}
