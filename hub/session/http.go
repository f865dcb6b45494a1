package session

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// here sees that this node serves runners. A follower points them to the leader, or
// hands the request on to it: always where the runner may know no other way
// (carried), else only where pointing would lead to the same address, of a proxy in
// front of all. What another node handed on goes no further.
func (s *Server) here(w http.ResponseWriter, r *http.Request, carried bool) bool {
	if s.cfg.Leading() {
		return true
	}
	leader, forwarded := s.cfg.Leader(), s.cfg.Forwarded(r)
	switch {
	case leader == "":
	case forwarded:
		w.Header().Set(wire.LeaderHeader, leader)
		s.answer(w, http.StatusServiceUnavailable, fleet.Unavailable, "this hub was asked as the leader and is it no more; try again")
		return false
	case s.cfg.Forward != nil && (carried || leader == s.cfg.URL):
		if err := s.cfg.Forward(w, r); err != nil {
			s.problem(w, statusOf(err), err)
		}
		return false
	default:
		w.Header().Set(wire.LeaderHeader, leader)
		w.Header().Set("Location", strings.TrimSuffix(leader, "/")+r.URL.RequestURI())
		s.answer(w, http.StatusTemporaryRedirect, fleet.Unavailable, "another hub leads; connect to it")
		return false
	}
	s.answer(w, http.StatusServiceUnavailable, fleet.Unavailable, "no hub leads at this moment; try again")
	return false
}

// problem answers with a problem document for an error. The text of an internal one
// stays in the log.
func (s *Server) problem(w http.ResponseWriter, status int, err error) {
	code, detail := codeOf(err), err.Error()
	if code == fleet.Internal || code == fleet.OutcomeUnknown {
		s.cfg.Logger.Error("request failed", "err", err)
		detail = "the hub could not do it; its log says why"
	}
	s.answer(w, status, code, strings.TrimSuffix(detail, ": "+string(code)))
}

func (s *Server) answer(w http.ResponseWriter, status int, code fleet.Code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set(wire.CodeHeader, string(code))
	if status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", strconv.Itoa(seconds(s.again())))
	}
	w.WriteHeader(status)
	b, err := json.Marshal(wire.Problem{Title: http.StatusText(status), Status: status, Detail: detail, Code: code, Leader: s.cfg.Leader(), Hubs: s.cfg.Hubs()})
	if err == nil {
		_, err = w.Write(b)
	}
	if err != nil {
		s.cfg.Logger.Debug("answer with a problem", "err", err)
	}
}

// statuses gives the HTTP status of the codes that requests of runners end in.
var statuses = map[fleet.Code]int{
	fleet.BadRequest:      http.StatusBadRequest,
	fleet.Unauthorised:    http.StatusUnauthorized,
	fleet.BadSignature:    http.StatusUnauthorized,
	fleet.SessionEnded:    http.StatusUnauthorized,
	fleet.Forbidden:       http.StatusForbidden,
	fleet.TicketInvalid:   http.StatusForbidden,
	fleet.TicketExpired:   http.StatusForbidden,
	fleet.TicketUsed:      http.StatusForbidden,
	fleet.RunnerUnknown:   http.StatusForbidden,
	fleet.RunnerRevoked:   http.StatusForbidden,
	fleet.ClonedIdentity:  http.StatusForbidden,
	fleet.NotFound:        http.StatusNotFound,
	fleet.BlobMissing:     http.StatusNotFound,
	fleet.Conflict:        http.StatusConflict,
	fleet.BadSequence:     http.StatusConflict,
	fleet.SpoolGap:        http.StatusConflict,
	fleet.TooLarge:        http.StatusRequestEntityTooLarge,
	fleet.BlobDigest:      http.StatusUnprocessableEntity,
	fleet.ProtocolVersion: http.StatusUpgradeRequired,
	fleet.DiskFull:        http.StatusInsufficientStorage,
	fleet.Unavailable:     http.StatusServiceUnavailable,
	fleet.Restarting:      http.StatusServiceUnavailable,
	fleet.OutcomeUnknown:  http.StatusServiceUnavailable,
}

func statusOf(err error) int {
	if st, ok := statuses[codeOf(err)]; ok {
		return st
	}
	return http.StatusInternalServerError
}

// bounded gives the context of a request that also ends with the server.
func (s *Server) bounded(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(fleet.Restarting) })
	return ctx, func() { stop(); cancel(nil) }
}
