package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/oklog/ulid/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// Enrol is POST /v1/enrol: a ticket's secret and a runner's public keys become an
// identity. The same keys may ask again and get the same answer.
func (s *Server) Enrol(w http.ResponseWriter, r *http.Request) {
	if !s.here(w, r, false) {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxEnrol))
	if err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			s.problem(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the enrolment has over %d bytes: %w", wire.MaxEnrol, fleet.TooLarge))
		}
		return
	}
	ctx, done := s.bounded(r.Context())
	defer done()
	var e wire.Enrol
	if err := wire.Decode(body, &e); err != nil {
		s.problem(w, http.StatusBadRequest, fmt.Errorf("decode enrolment: %w", err))
		return
	}
	if err := checkEnrol(e); err != nil {
		s.problem(w, statusOf(err), err)
		return
	}
	id, err := ulid.New(ulid.Timestamp(s.now()), s.cfg.Rand)
	if err != nil {
		s.problem(w, http.StatusInternalServerError, fmt.Errorf("make a runner id: %w", err))
		return
	}
	res, err := s.cfg.Proposer.Propose(ctx, &state.Enrol{
		Ticket: wire.SecretHash(e.Secret), ID: fleet.RunnerID("r-" + strings.ToLower(id.String())),
		Name: e.Name, SignKey: e.SignKey, BoxKey: e.BoxKey, MachineID: e.MachineID, Labels: e.Labels, MeshKey: e.MeshKey,
	})
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		s.problem(w, statusOf(err), err)
		return
	}
	answer, err := s.identity(fleet.RunnerID(res.ID))
	if err != nil {
		s.problem(w, statusOf(err), err)
		return
	}
	s.cfg.Logger.Info("runner enrolled", "runner", answer.Runner, "again", res.Repeated)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusCreated)
	b, err := json.Marshal(answer)
	if err == nil {
		_, err = w.Write(b)
	}
	if err != nil {
		s.cfg.Logger.Warn("answer enrolment", "runner", answer.Runner, "err", err)
	}
}

// identity gives what an enrolled runner is told of itself; its key is sealed to it.
func (s *Server) identity(id fleet.RunnerID) (wire.Enrolled, error) {
	v := s.cfg.Proposer.View()
	r, ok := v.Runner(id)
	if !ok || r.Removed {
		return wire.Enrolled{}, fmt.Errorf("runner %s was removed: %w", id, fleet.RunnerUnknown)
	}
	k := s.cfg.Keys()
	key, err := s.newKey(k, r)
	if err != nil {
		return wire.Enrolled{}, err
	}
	return wire.Enrolled{
		Runner: id, Name: r.Name, Cluster: k.Cluster, Epoch: s.cfg.Standing().Epoch,
		Generation: r.Generation, HMACKey: key.Key, Master: key.Master, Signing: k.Chain, Labels: r.Labels,
		ReleaseKey: fleet.ReleaseKeyOf(v.Meta().Settings),
	}, nil
}

// Bounds of what a runner says of itself when it enrols.
const (
	maxName   = 64
	maxLabels = 32
	maxLabel  = 128 // bytes of a key or value
)

func checkEnrol(e wire.Enrol) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%s: %w", fmt.Sprintf(format, a...), fleet.BadRequest)
	}
	switch {
	case e.Secret == "":
		return fmt.Errorf("the enrolment has no ticket secret: %w", fleet.TicketInvalid)
	case len(e.SignKey) != 32 || len(e.BoxKey) != 32:
		return bad("sign_key and box_key must have 32 bytes each, not %d and %d", len(e.SignKey), len(e.BoxKey))
	case e.Name == "" || len(e.Name) > maxName || strings.ContainsFunc(e.Name, notName):
		return bad("the name must have 1 to %d letters, digits, dots, dashes and underscores", maxName)
	case e.MachineID == "" || len(e.MachineID) > maxLabel:
		return bad("machine_id must have 1 to %d bytes", maxLabel)
	case len(e.Labels) > maxLabels:
		return bad("there are %d labels, at most %d", len(e.Labels), maxLabels)
	}
	for k, v := range e.Labels {
		if k == "" || len(k) > maxLabel || len(v) > maxLabel {
			return bad("label %q is empty or has a part over %d bytes", k, maxLabel)
		}
	}
	return nil
}

func notName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '-' || r == '_')
}
