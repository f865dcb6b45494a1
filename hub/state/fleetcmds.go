package state

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

var (
	_ = register(func() Command { return new(InitCluster) })
	_ = register(func() Command { return new(Set) })
	_ = register(func() Command { return new(CreateToken) })
	_ = register(func() Command { return new(RevokeToken) })
	_ = register(func() Command { return new(CreateTicket) })
	_ = register(func() Command { return new(Enrol) })
	_ = register(func() Command { return new(UpdateRunner) })
	_ = register(func() Command { return new(FlagRunner) })
	_ = register(func() Command { return new(RemoveRunner) })
	_ = register(func() Command { return new(RevokeRunner) })
)

// InitCluster names the cluster, once.
type InitCluster struct {
	Cluster string `json:"cluster"`
	Epoch   uint64 `json:"epoch"`
}

func (*InitCluster) kind() Kind { return 32 }

func (c *InitCluster) apply(t *txn) Result {
	if c.Cluster == "" {
		return refuse(fleet.BadRequest, "a cluster needs a name")
	}
	if t.meta.Cluster != "" {
		return refuse(fleet.Conflict, "the cluster is %s already", t.meta.Cluster)
	}
	t.meta.Cluster, t.meta.Epoch = c.Cluster, c.Epoch
	return Result{ID: c.Cluster}
}

// Set changes one setting; an empty value removes it.
type Set struct {
	Name  string `json:"name"` // default_harness
	Value string `json:"value"`
}

func (*Set) kind() Kind { return 33 }

func (c *Set) apply(t *txn) Result {
	s := maps.Clone(t.meta.Settings)
	if s == nil {
		s = map[string]string{}
	}
	s[c.Name] = c.Value
	if c.Value == "" {
		delete(s, c.Name)
	}
	t.meta.Settings = s
	t.changed(Change{What: "setting"})
	return Result{ID: c.Name}
}

// CreateToken records an operator token by the hash of its secret.
type CreateToken struct {
	Token fleet.Token   `json:"token"`
	TTL   time.Duration `json:"ttl_ns,omitempty"` // 0: no end
}

func (*CreateToken) kind() Kind { return 34 }

func (c *CreateToken) apply(t *txn) Result {
	k := c.Token
	if first[fleet.Token](t.Txn, tableTokens, "id", string(k.ID)) != nil {
		return refuse(fleet.Conflict, "there is a token %s already", k.ID)
	}
	k.CreatedAt, k.CreatedBy = t.now(), t.head.Actor
	if c.TTL > 0 {
		k.ExpiresAt = at(t.now().Add(c.TTL))
	}
	t.insert(tableTokens, &k)
	t.changed(Change{What: "token"})
	return Result{ID: string(k.ID)}
}

// RevokeToken ends a token at once, and the browsers' sessions and passkeys of it. The last admin token that works is kept.
type RevokeToken struct {
	ID fleet.TokenID `json:"id"`
}

func (*RevokeToken) kind() Kind { return 35 }

func (c *RevokeToken) apply(t *txn) Result {
	k := first[fleet.Token](t.Txn, tableTokens, "id", string(c.ID))
	if k == nil {
		return refuse(fleet.NotFound, "there is no token %s", c.ID)
	}
	if k.Revoked {
		return Result{ID: string(c.ID), Repeated: true}
	}
	others := 0
	each(t.Txn, tableTokens, "id", func(o *fleet.Token) bool {
		if o.ID != k.ID && o.Role == fleet.RoleAdmin && TokenWorks(o, t.now()) {
			others++
		}
		return true
	})
	if k.Role == fleet.RoleAdmin && TokenWorks(k, t.now()) && others == 0 {
		return refuse(fleet.Conflict, "token %s is the last admin token; create another one first", c.ID)
	}
	n := *k
	n.Revoked = true
	t.insert(tableTokens, &n)
	t.signOutAll(n.ID)
	t.changed(Change{What: "token"})
	return Result{ID: string(c.ID)}
}

// TokenWorks says whether a token is good at the given time.
func TokenWorks(k *fleet.Token, now time.Time) bool {
	return !k.Revoked && (k.ExpiresAt == nil || now.Before(*k.ExpiresAt))
}

// CreateTicket records a join ticket by the hash of its secret.
type CreateTicket struct {
	Hash   fleet.Digest      `json:"hash"`
	TTL    time.Duration     `json:"ttl_ns"`
	Uses   int               `json:"uses"`
	Labels map[string]string `json:"labels,omitempty"`
	For    fleet.RunnerID    `json:"for,omitempty"`

	Role    string `json:"role,omitempty"`    // fleet.TicketHub for a hub node; else a runner's
	Guest   []byte `json:"guest,omitempty"`   // of a hub's, and of a runner's that comes by the mesh: the public key made of its secret
	Replace string `json:"replace,omitempty"` // of a hub's: the node that goes when another one comes by it
}

func (*CreateTicket) kind() Kind { return 36 }

func (c *CreateTicket) apply(t *txn) Result {
	switch {
	case !c.Hash.Valid():
		return refuse(fleet.BadRequest, "a ticket is recorded by the SHA-256 of its secret")
	case first[fleet.Ticket](t.Txn, tableTickets, "id", string(c.Hash)) != nil:
		return refuse(fleet.Conflict, "there is such a ticket already")
	}
	if c.For != "" {
		if r := t.runner(c.For); r == nil || r.Removed {
			return refuse(fleet.NotFound, "there is no runner %s", c.For)
		}
	}
	role := c.Role
	switch {
	case role == fleet.TicketHub:
		if bad := c.forHub(t); bad.Code != "" {
			return bad
		}
	case role != "" && role != fleet.TicketRunner:
		return refuse(fleet.BadRequest, "a ticket is for a runner or a hub, not for a %q", role)
	case c.Replace != "" || len(c.Guest) != 0 && len(c.Guest) != fleet.MeshKeyBytes:
		return refuse(fleet.BadRequest, "a runner's ticket replaces no hub, and its guest key has 32 bytes if it has one")
	default:
		role = "" // as all tickets were before there were others
	}
	t.insert(tableTickets, &fleet.Ticket{Hash: c.Hash, CreatedAt: t.now(), CreatedBy: t.head.Actor,
		ExpiresAt: t.now().Add(c.TTL), Uses: c.Uses, Labels: c.Labels, For: c.For, Role: role, Guest: c.Guest, Replace: c.Replace})
	t.changed(Change{What: "ticket"})
	return Result{ID: string(c.Hash[:12])}
}

// forHub refuses what a hub's ticket cannot be.
func (c *CreateTicket) forHub(t *txn) Result {
	switch {
	case len(c.Guest) != fleet.MeshKeyBytes:
		return refuse(fleet.BadRequest, "a hub's ticket needs a guest key of 32 bytes")
	case c.For != "" || len(c.Labels) > 0:
		return refuse(fleet.BadRequest, "a hub's ticket has no labels and is for no runner")
	case c.Replace == "":
	case t.node(c.Replace) == nil:
		return refuse(fleet.NodeUnknown, "there is no hub node %s to replace", c.Replace)
	case t.node(c.Replace).Removed():
		return refuse(fleet.NodeRemoved, "hub node %s is removed already; a ticket without --replace does", c.Replace)
	}
	return Result{}
}

// Enrol turns a ticket into a runner identity. The ticket is consumed for the
// runner's public key: the same key may repeat it and gets the same id.
type Enrol struct {
	Ticket    fleet.Digest      `json:"ticket"`
	ID        fleet.RunnerID    `json:"id"` // for a new runner
	Name      string            `json:"name"`
	SignKey   []byte            `json:"sign_key"`
	BoxKey    []byte            `json:"box_key"`
	MachineID string            `json:"machine_id"`
	Labels    map[string]string `json:"labels,omitempty"`
	MeshKey   []byte            `json:"mesh_key,omitempty"` // of a runner that comes by the mesh
}

func (*Enrol) kind() Kind { return 37 }

func (c *Enrol) apply(t *txn) Result {
	k := first[fleet.Ticket](t.Txn, tableTickets, "id", string(c.Ticket))
	if k == nil {
		return refuse(fleet.TicketInvalid, "the hub does not know this ticket; ask for a new one with `tugline hub ticket`")
	}
	if k.Role == fleet.TicketHub {
		return refuse(fleet.TicketInvalid, "the ticket is for a hub node; ask for a runner's with `tugline hub ticket`")
	}
	key := hex.EncodeToString(c.SignKey)
	if id, ok := k.Consumed[key]; ok {
		if t.now().After(k.ExpiresAt.Add(KeepKeys)) {
			return refuse(fleet.TicketExpired, "the ticket expired more than a day ago; ask for a new one with `tugline hub ticket`")
		}
		r := t.runner(id)
		switch {
		case r == nil || r.Removed:
			return refuse(fleet.RunnerUnknown, "runner %s, which this ticket enrolled, was removed; ask for a new one with `tugline hub ticket`", id)
		case !bytes.Equal(r.SignKey, c.SignKey):
			return refuse(fleet.TicketUsed, "runner %s was enrolled anew with another key since; ask for a new one with `tugline hub ticket --for %s`", r.Name, r.Name)
		}
		return Result{ID: string(id), Repeated: true}
	}
	switch {
	case k.For == "" && t.runner(c.ID) != nil:
		return refuse(fleet.Conflict, "there is a runner %s already", c.ID)
	case t.now().After(k.ExpiresAt):
		return refuse(fleet.TicketExpired, "the ticket expired at %s; ask for a new one with `tugline hub ticket`", k.ExpiresAt.UTC().Format(time.RFC3339))
	case k.Uses <= 0:
		return refuse(fleet.TicketUsed, "the ticket was used up by another runner; ask for a new one with `tugline hub ticket`")
	}
	if bad := t.meshKeyOf(c, k); bad.Code != "" {
		return bad
	}
	r := &fleet.Runner{ID: c.ID, Generation: 1, Floor: 1, EnrolledAt: t.now(), Name: t.freeName(c.Name)}
	if k.For != "" {
		old := t.runner(k.For)
		if old == nil || old.Removed {
			return refuse(fleet.RunnerUnknown, "runner %s was removed; enrol with a ticket that is not for it", k.For)
		}
		n := *old
		n.Generation++
		n.Floor, n.Conflict, n.JournalID, n.JournalCount = n.Generation, "", "", 0
		if c.MachineID != old.MachineID {
			n.Health = nil // of another machine
		}
		t.loseAll(&n, "the runner was enrolled anew")
		r = &n
	}
	r.SignKey, r.BoxKey, r.MachineID, r.Master, r.MeshKey = c.SignKey, c.BoxKey, c.MachineID, t.activeMaster(), c.MeshKey
	r.Labels = map[string]string{}
	maps.Copy(r.Labels, c.Labels)
	maps.Copy(r.Labels, k.Labels) // what the ticket says wins
	n := *k
	n.Uses--
	n.Consumed = maps.Clone(k.Consumed)
	if n.Consumed == nil {
		n.Consumed = map[string]fleet.RunnerID{}
	}
	n.Consumed[key] = r.ID
	t.insert(tableTickets, &n)
	t.putRunner(r)
	if k.For == "" {
		t.provisionNew(r)
	}
	return Result{ID: string(r.ID)}
}

// freeName gives the wanted name, with a number behind it where it is taken.
func (t *txn) freeName(want string) string {
	name := want
	for i := 2; ; i++ {
		if _, taken := (View{t.Txn}).FindRunner(name); !taken {
			return name
		}
		name = fmt.Sprintf("%s-%d", want, i)
	}
}

func (t *txn) putRunner(r *fleet.Runner) {
	t.insert(tableRunners, r)
	t.changed(Change{What: "runner", Runner: r})
}

// editRunner gives a copy of a runner that is still enrolled.
func (t *txn) editRunner(id fleet.RunnerID) (*fleet.Runner, Result) {
	r := t.runner(id)
	if r == nil || r.Removed {
		return nil, refuse(fleet.RunnerUnknown, "there is no runner %s", id)
	}
	n := *r
	return &n, Result{}
}

// UpdateRunner records what a runner says of itself at the start of a session or
// when it changed. A new journal means that the runner no longer knows its
// accepted attempts: they are lost at once.
type UpdateRunner struct {
	ID           fleet.RunnerID     `json:"id"`
	Facts        *fleet.RunnerFacts `json:"facts,omitempty"`
	MachineID    string             `json:"machine_id,omitempty"`
	JournalID    string             `json:"journal_id,omitempty"`
	JournalCount uint64             `json:"journal_count,omitempty"`
	Master       uint64             `json:"master,omitempty"` // that its key comes from, when it changed
}

func (*UpdateRunner) kind() Kind { return 38 }

func (c *UpdateRunner) apply(t *txn) Result {
	r, bad := t.editRunner(c.ID)
	if r == nil {
		return bad
	}
	if c.JournalID != "" && c.JournalID != r.JournalID {
		if r.JournalID != "" {
			t.loseAll(r, "the runner came back with a new journal and no record of it")
		}
		r.JournalID, r.JournalCount = c.JournalID, 0 // a new journal counts anew
	}
	r.JournalCount = max(r.JournalCount, c.JournalCount)
	r.MachineID = orElse(c.MachineID, r.MachineID)
	if c.Master != 0 {
		r.Master = c.Master
	}
	if c.Facts != nil && !sameRow(&r.Facts, c.Facts) {
		t.credentials(r.ID, r.Facts, *c.Facts)
		r.Facts, r.FactsRev = *c.Facts, t.index
	}
	t.putRunner(r)
	return Result{ID: string(r.ID)}
}

// loseAll marks every accepted attempt of a runner lost and returns the others.
func (t *txn) loseAll(r *fleet.Runner, why string) {
	for _, o := range (View{t.Txn}).OpenOf(r.ID) {
		j := t.job(o.Job.ID).Clone() // as the attempts before it left the job
		_, a := j.Find(o.Attempt.Fence)
		switch {
		case a == pending(j.Turn()):
			t.giveBack(j, a, why)
		case a.State == fleet.AttemptRunning:
			rules := 0
			if a.Harness != "" { // it was given under the rules
				rules = currentRules
			}
			t.lose(j, a, why, rules)
		default:
			continue
		}
		t.put(j)
	}
}

// FlagRunner sets or clears what keeps a runner from work.
type FlagRunner struct {
	ID       fleet.RunnerID `json:"id"`
	Conflict *string        `json:"conflict,omitempty"` // "" clears it
	Cordoned *bool          `json:"cordoned,omitempty"`
}

func (*FlagRunner) kind() Kind { return 39 }

func (c *FlagRunner) apply(t *txn) Result {
	r, bad := t.editRunner(c.ID)
	if r == nil {
		return bad
	}
	if c.Conflict != nil {
		r.Conflict = *c.Conflict
		if r.Conflict == "" { // the next session's identity is taken as the right one
			r.MachineID, r.JournalCount = "", 0
		}
	}
	if c.Cordoned != nil {
		if r.Cordoned = *c.Cordoned; !r.Cordoned {
			r.Hold = nil // it is an older way to say that there is no hold
		}
	}
	t.putRunner(r)
	return Result{ID: string(r.ID)}
}

// RemoveRunner ends an enrolment. Unaccepted attempts go back to the queue; with
// accepted ones it is refused unless AbandonJobs.
type RemoveRunner struct {
	ID          fleet.RunnerID `json:"id"`
	AbandonJobs bool           `json:"abandon_jobs,omitempty"`
}

func (*RemoveRunner) kind() Kind { return 40 }

func (c *RemoveRunner) apply(t *txn) Result {
	r, bad := t.editRunner(c.ID)
	if r == nil {
		return bad
	}
	for _, o := range (View{t.Txn}).OpenOf(c.ID) {
		j := t.job(o.Job.ID).Clone() // as the attempts before it left the job
		_, a := j.Find(o.Attempt.Fence)
		switch {
		case a == pending(j.Turn()):
			t.giveBack(j, a, "the runner was removed")
			t.put(j)
		case a.State == fleet.AttemptRunning || a.State == fleet.AttemptLost:
			if !c.AbandonJobs {
				return refuse(fleet.Conflict, "runner %s still has job %s; cancel it first, or use --abandon-jobs", r.Name, j.ID)
			}
			if j.Current() == a && (j.State == fleet.Running || j.State == fleet.Lost) {
				if res := t.cancel(j, true); res.Code != "" {
					return res
				}
				continue
			}
			a.State = fleet.AttemptAbandoned
			t.put(j)
		case a.State == fleet.AttemptFinished:
			a.Log.Sealed = true // what has not come will not come
			t.put(j)
		}
	}
	r.Removed = true
	t.forgetRunner(r.ID)
	t.forgetProvisions(r.ID)
	t.putRunner(r)
	return Result{ID: string(r.ID)}
}

// RevokeRunner refuses the runner's present key from now on; it must enrol anew.
type RevokeRunner struct {
	ID fleet.RunnerID `json:"id"`
}

func (*RevokeRunner) kind() Kind { return 41 }

func (c *RevokeRunner) apply(t *txn) Result {
	r, bad := t.editRunner(c.ID)
	if r == nil {
		return bad
	}
	r.Floor = r.Generation + 1
	t.putRunner(r)
	return Result{ID: string(r.ID)}
}
