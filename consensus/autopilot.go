package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"
)

// Fact is what the owner knows of a node and the log does not tell.
type Fact struct {
	ID      string
	Alive   bool   // it was heard of lately, by gossip or otherwise
	Ready   bool   // it may get a vote: whatever it has to hold beside the log is there
	Version string // of its software
}

// Pilot says how Autopilot looks after the members.
type Pilot struct {
	// Facts tells about the nodes. It must not block. A member that it does not name is
	// neither promoted nor removed.
	Facts func() []Fact
	// Remove takes a dead member out of the group. Default: the node's Remove.
	Remove func(ctx context.Context, id string) error
	// Stable is how long a learner must have been ready and have kept up before it is
	// promoted. Default 10 s.
	Stable time.Duration
	// DeadAfter is how long a member must have been dead before it is removed. It has to
	// be known to be dead all that time, to one leader. Default 24 h.
	DeadAfter time.Duration
	// MinVoters is the number of voters that must be left when a dead one is removed.
	// Default 3.
	MinVoters int
	// Interval is the time between two looks. Default 2 s.
	Interval time.Duration
}

// maxLag is how many entries a node may lack and still keep up.
const maxLag = 1024

// Autopilot looks after the members for as long as this node leads: it gives a vote to
// learners that are ready, and takes out members that are dead, at most as many at a
// time as leave the group its majority. It returns when ctx ends or the node stops,
// with that cause.
func (n *Node) Autopilot(ctx context.Context, p Pilot) error {
	setDefault(&p.Stable, 10*time.Second)
	setDefault(&p.DeadAfter, 24*time.Hour)
	setDefault(&p.MinVoters, 3)
	setDefault(&p.Interval, 2*time.Second)
	if p.Remove == nil {
		p.Remove = n.Remove
	}
	if p.Facts == nil {
		return errors.New("autopilot without facts")
	}
	return n.WhileLeader(ctx, func(ctx context.Context) error {
		a := &pilot{Pilot: p, ctx: ctx, node: n, dead: map[string]time.Time{}, good: map[raft.ServerID]time.Time{}}
		run := autopilot.New(pilotRaft{n.raft, n}, a, autopilot.WithLogger(raftLogger(n.log)), autopilot.WithPromoter(a),
			autopilot.WithUpdateInterval(p.Interval), autopilot.WithReconcileInterval(p.Interval))
		run.Start(ctx)
		<-ctx.Done()
		<-run.Stop()
		a.removing.Wait()
		return context.Cause(ctx)
	})
}

// pilot answers the library's questions during one term, and says whom to promote.
type pilot struct {
	Pilot
	autopilot.StablePromoter
	ctx  context.Context
	node *Node

	mu       sync.Mutex
	dead     map[string]time.Time        // since when
	good     map[raft.ServerID]time.Time // since when ready and healthy
	busy     bool
	removing sync.WaitGroup
}

// AutopilotConfig implements autopilot.ApplicationIntegration.
func (a *pilot) AutopilotConfig() *autopilot.Config {
	return &autopilot.Config{
		CleanupDeadServers: true, LastContactThreshold: 2 * a.node.cfg.Heartbeat, MaxTrailingLogs: maxLag,
		MinQuorum: uint(a.MinVoters), ServerStabilizationTime: a.Stable,
	}
}

// NotifyState implements autopilot.ApplicationIntegration. The library's own note of
// since when a server is healthy stays at the first look at it.
func (a *pilot) NotifyState(s *autopilot.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, one := range s.Servers {
		ready, _ := one.Server.Ext.(bool)
		if !ready || !one.Health.Healthy {
			delete(a.good, id)
		} else if _, ok := a.good[id]; !ok {
			a.good[id] = time.Now()
		}
	}
}

// KnownServers implements autopilot.ApplicationIntegration. It names every member: the
// library removes whom the application does not know.
func (a *pilot) KnownServers() map[raft.ServerID]*autopilot.Server {
	facts := map[string]Fact{}
	for _, f := range a.Facts() {
		facts[f.ID] = f
	}
	all, err := a.node.Members()
	if err != nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known := map[raft.ServerID]*autopilot.Server{}
	for _, m := range all {
		f, told := facts[m.ID]
		self := m.ID == a.node.cfg.NodeID
		s := &autopilot.Server{
			ID: raft.ServerID(m.ID), Name: m.ID, Address: raft.ServerAddress(m.Addr), NodeStatus: autopilot.NodeAlive,
			Version: f.Version, RaftVersion: int(raft.ProtocolVersionMax), IsLeader: self, NodeType: autopilot.NodeVoter,
			Ext: told && f.Ready,
		}
		answers := m.Contact >= 0 && m.Contact < 2*a.node.cfg.Heartbeat
		if !told || f.Alive || self || answers {
			delete(a.dead, m.ID)
		} else {
			s.NodeStatus = autopilot.NodeFailed
			if _, ok := a.dead[m.ID]; !ok {
				a.dead[m.ID] = time.Now()
			}
		}
		known[s.ID] = s
	}
	return known
}

// FetchServerStats implements autopilot.ApplicationIntegration.
func (a *pilot) FetchServerStats(_ context.Context, servers map[raft.ServerID]*autopilot.Server) map[raft.ServerID]*autopilot.ServerStats {
	out := map[raft.ServerID]*autopilot.ServerStats{}
	for id := range servers {
		if string(id) == a.node.cfg.NodeID {
			out[id] = &autopilot.ServerStats{LastTerm: a.node.raft.CurrentTerm(), LastIndex: a.node.raft.LastIndex()}
			continue
		}
		p := a.node.progress(string(id))
		stats := &autopilot.ServerStats{LastContact: -1, LastTerm: p.term, LastIndex: p.match}
		if !p.contact.IsZero() {
			stats.LastContact = time.Since(p.contact)
		}
		out[id] = stats
	}
	return out
}

// CalculatePromotionsAndDemotions implements autopilot.Promoter.
func (a *pilot) CalculatePromotionsAndDemotions(_ *autopilot.Config, s *autopilot.State) (changes autopilot.RaftChanges) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, one := range s.Servers {
		since, ok := a.good[id]
		if one.State == autopilot.RaftNonVoter && ok && time.Since(since) >= a.Stable {
			changes.Promotions = append(changes.Promotions, id)
		}
	}
	return changes
}

// FilterFailedServerRemovals implements autopilot.Promoter. Members that are not in
// the facts stay, and so do those that have not been dead for long.
func (a *pilot) FilterFailedServerRemovals(_ *autopilot.Config, _ *autopilot.State, failed *autopilot.FailedServers) *autopilot.FailedServers {
	a.mu.Lock()
	defer a.mu.Unlock()
	long := func(all []*autopilot.Server) (out []*autopilot.Server) {
		for _, s := range all {
			if since, ok := a.dead[string(s.ID)]; ok && time.Since(since) >= a.DeadAfter {
				out = append(out, s)
			}
		}
		return out
	}
	return &autopilot.FailedServers{FailedNonVoters: long(failed.FailedNonVoters), FailedVoters: long(failed.FailedVoters)}
}

// RemoveFailedServer implements autopilot.ApplicationIntegration. One is removed at a
// time: after the next look the others are judged anew.
func (a *pilot) RemoveFailedServer(s *autopilot.Server) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy {
		return
	}
	a.busy = true
	a.removing.Go(func() {
		err := a.Remove(a.ctx, string(s.ID))
		a.node.log.Warn("removed a member that was dead for long", "member", s.ID, "err", err)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.busy = false
	})
}

// pilotRaft gives no vote to a learner that lacks anything.
type pilotRaft struct {
	*raft.Raft
	node *Node
}

// AddVoter implements autopilot.Raft.
func (r pilotRaft) AddVoter(id raft.ServerID, addr raft.ServerAddress, prev uint64, wait time.Duration) raft.IndexFuture {
	if !r.node.caughtUp(string(id)) {
		r.node.log.Debug("a learner lacks entries still, and gets no vote yet", "member", id)
		return refusedChange{fmt.Errorf("promote %s: %w", id, ErrBehind)}
	}
	return r.Raft.AddVoter(id, addr, prev, changeWait)
}

// Leader implements autopilot.Raft.
func (r pilotRaft) Leader() raft.ServerAddress {
	addr, _ := r.LeaderWithID()
	return addr
}

// refusedChange is a future that has failed.
type refusedChange struct{ err error }

func (f refusedChange) Error() error  { return f.err }
func (f refusedChange) Index() uint64 { return 0 }
