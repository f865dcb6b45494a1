package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// statuses maps every code that can reach this interface to an HTTP status.
var statuses = map[fleet.Code]int{
	fleet.BadRequest: 400, fleet.Unauthorised: 401, fleet.Forbidden: 403, fleet.NotFound: 404,
	fleet.Conflict: 409, fleet.KeyReused: 409, fleet.StaleFence: 409, fleet.NotCurrent: 409,
	fleet.CancelRequested: 409, fleet.AlreadyFinished: 409, fleet.LogSealed: 409,
	fleet.TooLarge: 413, fleet.BlobDigest: 422, fleet.SpoolGap: 416, fleet.SpoolMismatch: 409,
	fleet.BlobMissing: 404, fleet.RunnerUnknown: 404, fleet.QueueFull: 429, fleet.KeysFull: 429, fleet.TooOften: 429,
	fleet.TicketInvalid: 403, fleet.TicketExpired: 403, fleet.TicketUsed: 403, fleet.ClockSkew: 503,
	fleet.Unavailable: 503, fleet.OutcomeUnknown: 503, fleet.Restarting: 503, fleet.DiskFull: 507,
	fleet.OwnerPolicy: 409, fleet.Offline: 409, fleet.UnknownCritical: 409,
	fleet.Internal: 500,
}

// retryAfter is how many seconds a refused caller should wait.
const retryAfter = "2"

// problem is an RFC 9457 document that is also an error.
type problem struct{ api.Problem }

func (p *problem) Error() string                { return p.Detail }
func (p *problem) GetStatus() int               { return p.Status }
func (p *problem) ContentType(string) string    { return "application/problem+json" }
func (p *problem) MarshalJSON() ([]byte, error) { return json.Marshal(p.Problem) }
func (p *problem) Unwrap() error                { return p.Code }

// GetHeaders says when to come back, where that is the remedy.
func (p *problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", retryAfter)
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="tugline"`)
	}
	return h
}
func (p *problem) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[api.Problem](), true, "Problem")
}

// wrong makes a refusal: what happened, to what, and what to do next.
func wrong(code fleet.Code, format string, args ...any) *problem {
	st := statuses[code]
	if st == 0 {
		st = 500
	}
	return &problem{api.Problem{
		Type: "about:blank#" + string(code), Title: strings.ReplaceAll(string(code), "_", " "),
		Status: st, Code: code, Detail: fmt.Sprintf(format, args...),
	}}
}

// refused turns a refusal of the state into a problem.
func refused(r state.Result) error {
	if r.Code == "" {
		return nil
	}
	return wrong(r.Code, "%s", r.Detail)
}

// problemOf turns any error into a problem. A cause that is nobody's business
// stays in the log and in this node's memory, under a reference.
func (s *Server) problemOf(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var said *fleet.Said
	if errors.As(err, &said) && statuses[said.Code] != 0 {
		s.log.Debug("request failed", "code", said.Code, "err", err)
		return wrong(said.Code, "%s", said.Text)
	}
	var code fleet.Code
	if errors.As(err, &code) && statuses[code] != 0 && code != fleet.Internal {
		switch code {
		case fleet.Unavailable:
			p = wrong(code, "the hub cannot take this now: it has no leader or is starting or stopping; try again in a moment")
		case fleet.OutcomeUnknown:
			p = wrong(code, "the hub cannot say whether this was done; repeat it with the same Idempotency-Key")
		default:
			p = wrong(code, "%s", sentence(err, code))
		}
		if p.Status >= http.StatusInternalServerError {
			p.Instance = s.causes.note(s.cfg.Node, code, err)
		}
		s.log.Debug("request failed", "code", code, "instance", p.Instance, "err", err)
		return p
	}
	p = wrong(fleet.Internal, "the hub failed at this; an admin finds the cause by the instance given here, in the hub's log or by GET /v1/errors")
	p.Instance = s.causes.note(s.cfg.Node, fleet.Internal, err)
	s.log.Error("request failed", "instance", p.Instance, "err", err)
	return p
}

// sentence gives an error's text without the code that it ends with.
func sentence(err error, code fleet.Code) string {
	return strings.TrimSuffix(err.Error(), ": "+string(code))
}

// fail writes a problem outside the generated routes.
func (s *Server) fail(w http.ResponseWriter, _ *http.Request, err error) {
	s.problemOf(err).write(func(k, v string) { w.Header().Set(k, v) }, w.WriteHeader, w)
}

// write gives the problem as an answer.
func (p *problem) write(set func(k, v string), status func(int), w io.Writer) {
	for k, v := range p.GetHeaders() {
		set(k, v[0])
	}
	set("Content-Type", "application/problem+json")
	status(p.Status)
	json.NewEncoder(w).Encode(p) // who went away needs no answer
}

// The library reports its own refusals (malformed bodies, wrong types) through
// this one hook.
func init() {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		code := fleet.BadRequest
		switch {
		case status == http.StatusRequestEntityTooLarge:
			code = fleet.TooLarge
		case status == http.StatusNotFound:
			code = fleet.NotFound
		case status >= 500:
			code = fleet.Internal
		}
		var parts []string
		for _, e := range errs {
			var d *huma.ErrorDetail
			switch {
			case e == nil:
			case errors.As(e, &d):
				parts = append(parts, strings.TrimPrefix(d.Location+": "+detailText(d), ": "))
			default:
				parts = append(parts, e.Error())
			}
		}
		p := wrong(code, "%s", msg)
		if len(parts) > 0 {
			p.Detail += ": " + strings.Join(parts, "; ")
		}
		if status != http.StatusUnprocessableEntity {
			p.Status = status
		}
		return p
	}
}
