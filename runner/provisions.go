package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/inventory"
	"tugline.dev/tugline/runner/provision"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// provisions is where the runner stands with what the hub has it install. Offers come
// from the reconciler, which alone begins one.
type provisions struct {
	store *provision.Store // set by Run before the link is; nil: it can't be read

	// Under the runner's lock.
	busy string              // the id of the one that is being made
	view *wire.ProvisionView // of the one that the hub offers, as heartbeats tell it
}

func (p *provisions) program(what string) string {
	if p.store == nil {
		return ""
	}
	return p.store.Program(what)
}

// loadProvisions takes up what was installed. No process of an earlier life is left.
func (r *Runner) loadProvisions() {
	store, err := provision.Open(filepath.Join(r.cfg.Dir, "provisioned"))
	r.provisions.store = store
	if err != nil {
		r.log.Error("what was provisioned is not taken up", "err", err)
		r.alert("provision", err.Error())
		return
	}
	r.alert("provision", "")
}

// given are the credentials that jobs of each harness are started with: those that a hub
// gave, while its owner allows that and has it use the program that came with them.
func (r *Runner) given(o Owner) map[string][]string {
	if r.provisions.store == nil || !o.Provision.Credentials {
		return nil
	}
	out := map[string][]string{}
	for _, what := range fleet.Provisionable() {
		if env := r.provisions.store.Environ(what); len(env) > 0 && o.Harnesses[what].Path == "" {
			out[what] = env
		}
	}
	return out
}

// provisionGate is what decides whether an installation begins.
type provisionGate struct {
	what        string
	allowed     bool // by the owner's section provision
	barred      bool // by the owner's list of harnesses
	credentials bool // some come along
	mayGive     bool // the owner takes credentials from a hub
	hours       bool // it is a time at which the owner has installations
	jobs        bool // one of that harness is here
	busy        bool // the runner installs or updates something
	unread      bool // there are rules of the owner, and no good ones were read yet
}

// refuses says why the installation is not made at all; empty: it may be.
func (g provisionGate) refuses() string {
	switch {
	case g.unread:
		return "" // it waits
	case !g.allowed:
		return "runner.yaml does not let a hub install " + g.what + " (provision: allow)"
	case g.barred:
		return "runner.yaml does not allow the harness " + g.what + " (harnesses)"
	case g.credentials && !g.mayGive:
		return "runner.yaml does not let a hub give credentials (provision: credentials)"
	}
	return ""
}

// waits says why it is not begun yet; empty: it is.
func (g provisionGate) waits() string {
	switch {
	case g.unread:
		return "waits until runner.yaml can be read; see the runner's alerts"
	case !g.hours:
		return "waits for the owner's hours for installations"
	case g.jobs:
		return "waits until no job of " + g.what + " is here"
	case g.busy:
		return "waits for another installation or an update"
	}
	return ""
}

// provisionGate looks how an installation stands; the caller holds the lock.
func (r *Runner) provisionGate(p wire.Provision) provisionGate {
	o := r.owner
	_, named := o.Harnesses[p.What]
	g := provisionGate{
		what: p.What, allowed: slices.Contains(o.Provision.Allow, p.What), barred: p.What != fleet.ProvisionBrowser && len(o.Harnesses) > 0 && !named,
		credentials: len(p.Credentials) > 0 || len(p.Sealed) > 0, mayGive: o.Provision.Credentials,
		hours: inPeriods(o.Provision.Hours, time.Now()), busy: r.provisions.busy != "" || r.updates.busy != "",
		unread: r.ownerUnread,
	}
	for _, h := range r.attempts {
		g.jobs = g.jobs || h.attempt.Harness() == p.What
	}
	return g
}

// takeProvision looks at the installation that the hub offers, and begins it where
// everything allows it. Only the reconciler calls it.
func (r *Runner) takeProvision(s *session, o *wire.Offer) {
	p, err := r.provisionOf(s, o)
	if err != nil {
		r.log.Warn("installation without a valid order is passed over", "err", err)
		return
	}
	r.mu.Lock()
	was := r.provisions.view
	r.mu.Unlock()
	var now *wire.ProvisionView
	if p != nil {
		v := r.standing(*p)
		now = &v
	}
	if was == nil && now == nil || was != nil && now != nil && *was == *now {
		return
	}
	r.show(now)
}

// show has heartbeats tell how the installation stands.
func (r *Runner) show(v *wire.ProvisionView) {
	r.mu.Lock()
	r.provisions.view = v
	r.mu.Unlock()
	r.changed()
}

// provisionOf verifies an offer; nil is that there is none.
func (r *Runner) provisionOf(s *session, o *wire.Offer) (*wire.Provision, error) {
	if o == nil {
		return nil, nil
	}
	order, err := r.open(s, o.Order, o.Body)
	if err != nil {
		return nil, err
	}
	var p wire.Provision
	if err := wire.Decode(o.Body, &p); err != nil || order.Kind != wire.OrderProvision {
		return nil, fmt.Errorf("order %s is no installation: %w", order.ID, fleet.BadRequest)
	}
	if wrong := fleet.CheckProvision(p.What, p.Version, p.Credentials, p.PreserveAuth); wrong != "" {
		return nil, fmt.Errorf("order %s: %s: %w", order.ID, wrong, fleet.BadRequest)
	}
	return &p, nil
}

// standing says how an installation stands, and begins it where that can be.
func (r *Runner) standing(p wire.Provision) wire.ProvisionView {
	store := r.provisions.store
	if store == nil {
		return wire.ProvisionView{ID: p.ID, State: wire.ProvisionWaits, Detail: "what was installed before can't be read; see the runner's alerts"}
	}
	if rec, ok := store.Record(p.ID); ok {
		return viewOf(rec)
	}
	r.mu.Lock()
	g, begun := r.provisionGate(p), r.provisions.busy == p.ID
	r.mu.Unlock()
	if begun {
		return wire.ProvisionView{ID: p.ID, State: wire.ProvisionInstalls}
	}
	if why := g.refuses(); why != "" {
		return r.refuse(p, fleet.ProvisionPolicy, why)
	}
	if why := g.waits(); why != "" {
		return wire.ProvisionView{ID: p.ID, State: wire.ProvisionWaits, Detail: why}
	}
	var values map[string]string
	if g.credentials {
		var err error
		if values, err = wire.OpenCredentials(r.id.BoxPub, r.id.BoxPriv, p); err != nil {
			return r.refuse(p, fleet.ProvisionCredentials, "the credentials that came along can't be read; have it asked for again, with them")
		}
	}
	r.mu.Lock()
	r.provisions.busy = p.ID
	r.mu.Unlock()
	r.work.Go(func() { r.provision(r.life, p, values) })
	return wire.ProvisionView{ID: p.ID, State: wire.ProvisionInstalls}
}

// refuse ends an installation that was not begun.
func (r *Runner) refuse(p wire.Provision, class, why string) wire.ProvisionView {
	rec := provision.Record{ID: p.ID, What: p.What, State: provision.Failed, Class: class, Detail: why}
	if err := r.provisions.store.Put(rec); err != nil {
		r.trouble(err) // it is refused again
	}
	r.log.Warn("installation is refused", "what", p.What, "id", p.ID, "err", why)
	return viewOf(rec)
}

func viewOf(rec provision.Record) wire.ProvisionView {
	return wire.ProvisionView{ID: rec.ID, State: rec.State, Installed: rec.Installed, Class: rec.Class, Detail: rec.Detail}
}

// provision makes an installation, and then has the agents looked for anew.
func (r *Runner) provision(ctx context.Context, p wire.Provision, values map[string]string) {
	r.log.Info("installation begins", "what", p.What, "version", p.Version, "id", p.ID, "credentials", p.Credentials)
	rec, err := r.carryOut(ctx, p, values)
	r.mu.Lock()
	r.provisions.busy = ""
	r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return // the next start ends it
	case err != nil:
		r.trouble(err)
	}
	r.log.Info("installation has ended", "what", p.What, "id", p.ID, "state", rec.State, "version", rec.Installed, "class", rec.Class, "err", rec.Detail)
	v := viewOf(rec)
	r.show(&v)
	r.redetect()
}

// noRoom says why there is no room for an installation; empty: there is. What can't be
// told is no room.
func noRoom(v fleet.Volume) string {
	switch {
	case !v.Known:
		return "it is not known how much is free where the runner keeps its data: " + v.Detail
	case v.Free < updateRoom:
		return fmt.Sprintf("%s free where the runner keeps its data, below %s", attempt.Size(v.Free), attempt.Size(updateRoom))
	}
	return ""
}

func (r *Runner) carryOut(ctx context.Context, p wire.Provision, values map[string]string) (provision.Record, error) {
	if why := noRoom(r.fresh(ctx, r.cfg.Dir)); why != "" {
		rec := provision.Record{ID: p.ID, What: p.What, State: provision.Failed, Class: fleet.ProvisionStorage, Detail: why}
		return rec, r.provisions.store.Put(rec)
	}
	r.mu.Lock()
	source := r.owner.Provision.BrowserSource
	r.mu.Unlock()
	secrets, err := r.secrets()
	if err != nil {
		secrets = map[string]string{} // they are masked as far as they are known
	}
	hidden := map[string]string{}
	for name, value := range secrets {
		hidden["owner/"+name] = value
	}
	for name, value := range values {
		hidden["given/"+name] = value
	}
	known := attempt.Hider(os.Environ(), hidden)
	return r.provisions.store.Install(ctx, provision.Request{
		ID: p.ID, What: p.What, Version: p.Version, Source: source, Credentials: values, Env: os.Environ(), Mark: r.mark() + "provision",
		Hide: func(s string) string { return inventory.Masked(known(s)) }, // npm may quote what lies in an .npmrc
	})
}
