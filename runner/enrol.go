package runner

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	enrolTime  = 15 * time.Second // of one request
	enrolTries = 5                // over all hubs, while none answers
)

// enrolled gives the identity of the data directory, enrolling it with the ticket
// where it has none. The keys are durable before the ticket is used, so that a
// repeated enrolment is the same one.
func (r *Runner) enrolled(ctx context.Context) (*identity, error) {
	id, err := r.identity(ctx)
	if err != nil {
		return nil, err
	}
	if id != nil && id.Runner != "" {
		return id, nil
	}
	if r.cfg.Ticket == "" {
		return nil, notEnrolled()
	}
	if id == nil {
		if id, err = newIdentity(); err != nil {
			return nil, err
		}
		if err := r.place(ctx, id); err != nil {
			return nil, err
		}
		if err := id.save(r.cfg.Dir); err != nil {
			return nil, err
		}
	}
	return id, r.enrolWith(ctx, id)
}

// newTicket says whether the ticket given is of the identity's cluster and not the
// one that the identity comes from, which must not undo what the hub has decided since.
func (r *Runner) newTicket(id *identity) bool {
	t, err := wire.ParseTicket(r.cfg.Ticket)
	return err == nil && t.Cluster == id.Cluster && wire.SecretHash(t.Secret) != id.Ticket
}

// ticketHubs are the hubs of a new ticket, or none.
func (r *Runner) ticketHubs(id *identity) []string {
	if !r.newTicket(id) {
		return nil
	}
	t, err := wire.ParseTicket(r.cfg.Ticket)
	if err != nil {
		return nil
	}
	return t.Hubs
}

// enrolAnew replaces an identity that the hub takes no more, with new keys. The old
// one stays until the hub has answered.
func (r *Runner) enrolAnew(ctx context.Context) error {
	id, err := r.identity(ctx)
	if err != nil {
		return err
	}
	if id.Next == nil {
		if id.Next, err = newIdentity(); err != nil {
			return err
		}
		id.keptLike(id)
		if err := id.save(r.cfg.Dir); err != nil {
			return err
		}
	}
	return r.enrolWith(ctx, id.Next)
}

// enrolWith uses the ticket for the keys of an identity and keeps what comes of it.
func (r *Runner) enrolWith(ctx context.Context, id *identity) error {
	t, err := wire.ParseTicket(r.cfg.Ticket)
	if err != nil {
		return notTaken(err)
	}
	id.Hubs, id.Trust, id.Pin, id.Pins, id.CA, id.Plain = t.Hubs, t.Trust, t.Pin, t.Pins, t.CA, t.Plain
	dial := r.cfg.Dial
	if r.cfg.Enter != nil {
		d, end, err := r.cfg.Enter(t.Secret)
		if err != nil {
			return fmt.Errorf("enrol this runner: %w", err)
		}
		defer end()
		dial = d
	}
	n, err := newNetwork(id, id.pins, dial)
	if err != nil {
		return err
	}
	defer n.close()
	e, err := r.enrol(ctx, n, id, t)
	if err != nil {
		return notTaken(err)
	}
	if e.Cluster != t.Cluster {
		return fmt.Errorf("enrol this runner: the ticket is of cluster %s, but cluster %s answered: %w", t.Cluster, e.Cluster, fleet.ClusterMismatch)
	}
	if id.HMACKey, err = wire.OpenBox(id.BoxPub, id.BoxPriv, e.HMACKey); err != nil {
		return fmt.Errorf("enrol this runner: %w", err)
	}
	if len(e.Signing) == 0 || e.Runner == "" {
		return errors.New("enrol this runner: the hub's answer lacks the runner's id or the signing key; use the same release on both sides")
	}
	if _, err := wire.VerifyChain(ed25519.PublicKey(e.Signing[0].Key), e.Signing); err != nil {
		return fmt.Errorf("enrol this runner: %w", err)
	}
	id.Runner, id.Name, id.Cluster, id.Generation, id.Signing, id.Labels = e.Runner, e.Name, e.Cluster, e.Generation, e.Signing, e.Labels
	id.Master, id.Rekey, id.Ticket, id.ReleaseKey = e.Master, nil, wire.SecretHash(t.Secret), t.ReleaseKey
	if id.ReleaseKey == "" {
		id.ReleaseKey = e.ReleaseKey // made since the ticket
	}
	if err := id.save(r.cfg.Dir); err != nil {
		return err
	}
	r.log.Info("runner enrolled", "runner", string(id.Runner), "name", id.Name)
	return nil
}

// enrol asks the ticket's hubs in turn. A refusal is final; what may pass is tried
// again a few times.
func (r *Runner) enrol(ctx context.Context, n *network, id *identity, t wire.Ticket) (wire.Enrolled, error) {
	body, err := wire.Encode(wire.Enrol{
		Secret: t.Secret, Name: r.cfg.Name, SignKey: id.signKey().Public().(ed25519.PublicKey), BoxKey: id.BoxPub,
		MachineID: machineID(), Labels: r.cfg.Labels, MeshKey: r.cfg.MeshKey,
	})
	if err != nil {
		return wire.Enrolled{}, err
	}
	var last error
	hubs := append([]string(nil), t.Hubs...)
	for try, wait := 0, 250*time.Millisecond; try < enrolTries; try, wait = try+1, 2*wait {
		for i := 0; i < len(hubs); i++ {
			e, leader, err := askEnrol(ctx, n, hubs[i], body)
			if err == nil {
				return e, nil
			}
			if ctx.Err() != nil {
				return e, ctx.Err()
			}
			last = err
			var c fleet.Code
			if errors.As(err, &c) && c != fleet.Unavailable && c != fleet.Restarting && c != fleet.OutcomeUnknown && c != fleet.Internal {
				return e, err
			}
			if leader != "" && len(hubs) < 16 && !contains(hubs, leader) {
				hubs = append(hubs, leader)
			}
		}
		select {
		case <-time.After(jitter(wait)):
		case <-ctx.Done():
			return wire.Enrolled{}, ctx.Err()
		}
	}
	return wire.Enrolled{}, last
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if strings.TrimSuffix(x, "/") == strings.TrimSuffix(s, "/") {
			return true
		}
	}
	return false
}

func askEnrol(ctx context.Context, n *network, hub string, body []byte) (e wire.Enrolled, leader string, err error) {
	ctx, cancel := context.WithTimeout(ctx, enrolTime)
	defer cancel()
	url := strings.TrimSuffix(hub, "/") + wire.EnrolPath
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return e, "", fmt.Errorf("ask %s: %w: %w", hub, fleet.BadRequest, err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := n.client.Do(req)
	if err != nil {
		return e, "", fmt.Errorf("ask %s: %w", hub, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, wire.MaxEnrol))
	if err != nil {
		return e, "", fmt.Errorf("ask %s: %w", hub, err)
	}
	if res.StatusCode != http.StatusCreated && res.StatusCode != http.StatusOK {
		return e, res.Header.Get(wire.LeaderHeader), problemOf(res.StatusCode, b)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, "", fmt.Errorf("read the answer of %s: %w", hub, err)
	}
	return e, "", nil
}

// problemOf gives the error of a refusal over HTTP. One without a code of ours, such
// as a proxy's, may pass.
func problemOf(status int, body []byte) error {
	var p wire.Problem
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		return fmt.Errorf("the hub answered with status %d: %w", status, fleet.Unavailable)
	}
	if p.Detail == "" {
		p.Detail = p.Title
	}
	return fmt.Errorf("%s: %w", p.Detail, p.Code)
}
