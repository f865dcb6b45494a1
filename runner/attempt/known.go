package attempt

import (
	"time"

	"tugline.dev/tugline/runner/harness"
	"tugline.dev/tugline/runner/journal"
)

// A CLI whose stream names no model is looked up in its own record of the session,
// which may be written a moment later.
const (
	firstModelLook = time.Second // after the session was seen
	maxModelLooks  = 5           // each after twice the time
)

// known is what one run of the deriver has told of the CLI's session.
type known struct {
	session, model bool
	responded      bool
	looks          int
	next           time.Time
}

// tellSession tells the CLI's session and model as soon as they are known, each once
// an attempt: a run that ends without a result can be taken up again, too. The result
// names what was last in use.
func (a *Attempt) tellSession(k *known, p harness.Parser) {
	if k.session && k.model {
		return
	}
	id, model := p.Session()
	if id == "" && model == "" {
		return
	}
	rec, _ := a.host.Journal.Attempt(a.asg.Fence)
	k.model = k.model || rec.Progress.Model != ""
	if !k.session && id != "" {
		k.session, k.next = true, time.Now().Add(firstModelLook)
		if rec.Progress.SessionID == "" {
			a.factWith("session", id, func(p *journal.Progress) { p.SessionID = id })
		}
	}
	if model == "" && !k.model && k.session && k.looks < maxModelLooks && !time.Now().Before(k.next) {
		model = a.sessionModel(id)
		k.next = time.Now().Add(firstModelLook << k.looks)
		k.looks++
	}
	if !k.model && model != "" {
		k.model = true
		a.factWith("model", model, func(p *journal.Progress) { p.Model = model })
	}
}

// tellResponded tells once an attempt that the provider has completed a response.
func (a *Attempt) tellResponded(k *known, p harness.Parser) {
	if k.responded || !p.Responded() {
		return
	}
	k.responded = true
	if rec, _ := a.host.Journal.Attempt(a.asg.Fence); !rec.Progress.Responded {
		a.factWith("responded", true, func(p *journal.Progress) { p.Responded = true })
	}
}
