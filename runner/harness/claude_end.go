package harness

import (
	"fmt"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// over takes the result line.
func (d *claudeDecoder) over(s *stream, r claudeResult) {
	s.progress()
	d.result = &r
	u := r.Usage.fleet()
	u.CostUSD = r.Cost
	d.spent = fleet.Usage{}
	if !u.IsZero() {
		s.spend(u)
	}
	if len(r.Denials) > 0 {
		names := map[string]bool{}
		var list []string
		for _, p := range r.Denials {
			if !names[p.Tool] && len(list) < 20 {
				names[p.Tool] = true
				list = append(list, fleet.CutText(p.Tool, 80))
			}
		}
		s.log("warn", fmt.Sprintf("%d uses of tools were denied by permissions: %s", len(r.Denials), strings.Join(list, ", ")))
	}
	if d.erred() {
		if text := d.text(); text != "" && !d.aborted() {
			s.fail(text)
		}
	}
}

func (d *claudeDecoder) erred() bool {
	return d.result.IsError || strings.HasPrefix(d.result.Subtype, "error_")
}

func (d *claudeDecoder) aborted() bool { return strings.HasPrefix(d.result.Reason, "aborted_") }

func (d *claudeDecoder) text() string {
	if d.result.Result != "" {
		return d.result.Result
	}
	return strings.Join(d.result.Errors, "; ")
}

func (d *claudeDecoder) end(s *stream, x ExitInfo) fleet.Outcome {
	if d.result == nil {
		if !d.spent.IsZero() {
			s.spend(d.spent)
		}
		return s.ended(x, d.started, 0)
	}
	text := d.text()
	if !d.erred() {
		words := d.result.Result
		if words == "" {
			words = s.answer
		}
		o := s.ok(words)
		if o.Class == fleet.ClassOK && string(d.result.Stop) == "null" {
			// The CLI takes a stream that ends between two parts for a whole answer.
			o.Class, o.Detail = fleet.ClassProviderUnavailable, "the model's last answer broke off before its end"
		}
		return o
	}
	o := fleet.Outcome{Class: d.errorClass(text), Detail: text, Terminal: true}
	if d.aborted() || d.result.Subtype == "error_during_execution" && x.Reason != "exited" {
		o.Class, o.Detail = fleet.ClassCancelled, "interrupted"
		if strings.Contains(x.Reason, "timeout") {
			o.Class, o.Detail = timedOut(x.Reason), x.Reason
		}
		return o
	}
	if o.Detail == "" {
		o.Detail = d.result.Subtype
	}
	resets := d.resets
	if resets.resetAt == nil {
		resets = parseLimits(text, s.at, s.req.Zone)
	}
	resets.put(&o, s.at)
	return o
}

// errorClass tells what a result that is an error means, from the kind that the CLI gave it and its words.
func (d *claudeDecoder) errorClass(text string) fleet.FailureClass {
	low := fold(text)
	byText, known := classify(text, d.result.Status)
	switch {
	case strings.Contains(low, "no conversation found"):
		return fleet.ClassHarnessStartup
	case byText == fleet.ClassQuotaExhausted, d.errKind == "billing_error":
		return fleet.ClassQuotaExhausted
	case d.errKind == "rate_limit" && (d.rejected || strings.Contains(low, "resets ")):
		return fleet.ClassQuotaExhausted
	case d.result.Subtype == "error_max_turns", d.result.Subtype == "error_max_budget_usd":
		return fleet.ClassTaskFailed
	}
	if c := claudeKind(d.errKind); c != "" {
		return c
	}
	if known {
		return byText
	}
	return fleet.ClassUnknown
}

// claudeKind reads the CLI's own word for a failure, "" if it says nothing certain.
func claudeKind(kind string) fleet.FailureClass {
	switch kind {
	case "billing_error":
		return fleet.ClassQuotaExhausted
	case "rate_limit":
		return fleet.ClassRateLimited
	case "authentication_failed", "oauth_org_not_allowed":
		return fleet.ClassAuth
	case "model_not_found":
		return fleet.ClassModelUnavailable
	case "overloaded", "server_error":
		return fleet.ClassProviderUnavailable
	case "invalid_request", "max_output_tokens":
		return fleet.ClassTaskFailed
	}
	return ""
}
