package web

import (
	"context"
	"strings"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
)

// maxWalk is how many records a request looks through; the next goes on from there.
const maxWalk = 20_000

type auditIn struct {
	Limit   int       `query:"limit" minimum:"1" maximum:"500" default:"100"`
	Before  uint64    `query:"before" doc:"only records below this index: the next of the page before"`
	Actor   string    `query:"actor" doc:"only what this one did: a token's id or name, hub, or runner:ID"`
	Command string    `query:"command" doc:"only this command, such as job.cancel; with a dot at its end all that begin with it, such as job."`
	Subject string    `query:"subject" doc:"only what was done to this, by its whole id"`
	Since   time.Time `query:"since" doc:"only from this time on, RFC 3339"`
	Until   time.Time `query:"until" doc:"only before this time, RFC 3339"`
}

// audit gives a page of who did what. A page may have fewer records than were asked
// for, or none, and yet be followed by another.
func (s *Server) audit(_ context.Context, in *auditIn) (*struct{ Body api.AuditRecords }, error) {
	out := api.AuditRecords{Records: []api.AuditRecord{}}
	v, n := s.cfg.Log.View(), 0
	v.AuditBefore(in.Before, func(a *state.Audit) bool {
		if n++; n > maxWalk || len(out.Records) >= in.Limit {
			return false
		}
		if !in.Since.IsZero() && a.At.Before(in.Since) { // none before it is younger
			out.Next = 0
			return false
		}
		name := v.ActorName(a.Actor)
		if in.wants(a, name) {
			out.Records = append(out.Records, api.AuditRecord{Index: a.Index, At: a.At.UTC(), Actor: a.Actor, ActorName: name, Address: a.From, Command: a.Command, Subject: a.Subject, Detail: a.Detail})
		}
		out.Next = a.Index
		return true
	})
	if len(out.Records) < in.Limit && n <= maxWalk {
		out.Next = 0
	}
	return &struct{ Body api.AuditRecords }{out}, nil
}

func (in *auditIn) wants(a *state.Audit, name string) bool {
	switch {
	case in.Actor != "" && a.Actor != in.Actor && name != in.Actor,
		in.Subject != "" && a.Subject != in.Subject,
		!in.Until.IsZero() && !a.At.Before(in.Until):
		return false
	case strings.HasSuffix(in.Command, "."):
		return strings.HasPrefix(a.Command, in.Command)
	}
	return in.Command == "" || a.Command == in.Command
}
