package fakemodel

import (
	"strconv"
	"time"
)

// How the providers word their refusals, by protocol. The shapes are those of
// the public interfaces; clients decide by status, type, code and headers.

// byProvider is a step that refuses in the words of each provider.
func byProvider(openAI, anthropic *Fault) Step {
	return Step{FaultBy: map[Protocol]*Fault{Responses: openAI, Chat: openAI, Messages: anthropic}}
}

func openAIError(status int, kind string, code any, message string) *Fault {
	return &Fault{Status: status, Body: obj{"error": obj{"message": message, "type": kind, "param": nil, "code": code}}}
}

func anthropicError(status int, kind, message string) *Fault {
	return &Fault{Status: status, Body: messages{}.refusal(kind, message)}
}

func (f *Fault) with(name, value string) *Fault {
	if f.Header == nil {
		f.Header = map[string]string{}
	}
	f.Header[name] = value
	return f
}

func rateLimit(seconds string) Step {
	return byProvider(
		openAIError(429, "tokens", "rate_limit_exceeded",
			"Rate limit reached for fake-model on tokens per min (TPM): Limit 30000, Used 29500, Requested 4000. Please try again in "+seconds+"s.").
			with("retry-after", seconds),
		anthropicError(429, "rate_limit_error",
			"This request would exceed the rate limit of 30,000 input tokens per minute.").
			with("retry-after", seconds))
}

func noQuota() Step {
	return byProvider(
		openAIError(429, "insufficient_quota", "insufficient_quota",
			"You exceeded your current quota, please check your plan and billing details."),
		anthropicError(400, "invalid_request_error",
			"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."))
}

// LimitResetsAt is when the used-up plan of the usage-limit scenarios is said to
// be usable again, in Unix seconds: 2030-03-17 17:46:40 UTC.
const LimitResetsAt = 1900000000

// UsageLimit is a step without end that refuses because the limit of a paid plan is used
// up until a given time.
func UsageLimit(resets time.Time) Step {
	return always(usageLimit("plus", resets))[0]
}

func usageLimit(plan string, resets time.Time) Step {
	at := strconv.FormatInt(resets.Unix(), 10)
	st := byProvider(
		openAIError(429, "usage_limit_reached", "usage_limit_reached", RefusalText).with("retry-after", "3600"),
		anthropicError(429, "rate_limit_error", "This request would exceed your account's rate limit. Please try again later.").
			with("retry-after", "3600").
			with("x-should-retry", "false").
			with("anthropic-ratelimit-unified-status", "rejected").
			with("anthropic-ratelimit-unified-representative-claim", "five_hour").
			with("anthropic-ratelimit-unified-reset", at).
			with("anthropic-ratelimit-unified-5h-status", "rejected").
			with("anthropic-ratelimit-unified-5h-utilization", "1.0").
			with("anthropic-ratelimit-unified-5h-reset", at).
			with("anthropic-ratelimit-unified-overage-status", "rejected"))
	codex := &Fault{Status: 429, Body: obj{"error": obj{
		"type": "usage_limit_reached", "message": "The usage limit has been reached",
		"plan_type": plan, "resets_at": resets.Unix(), "resets_in_seconds": 3600,
	}}}
	st.FaultBy[Responses] = codex.
		with("x-codex-primary-used-percent", "100.0").
		with("x-codex-primary-window-minutes", "300").
		with("x-codex-primary-reset-at", at)
	return st
}

func upgradePlan() Step {
	return byProvider(
		openAIError(403, "permission_error", "usage_limit", "Usage limit reached. Upgrade your plan to continue"),
		anthropicError(403, "permission_error", "Usage limit reached. Upgrade your plan to continue"))
}

func modelMissing() Step {
	return byProvider(
		openAIError(404, "invalid_request_error", "model_not_found",
			"The model `fake-model` does not exist or you do not have access to it."),
		anthropicError(404, "not_found_error", "model: fake-model"))
}

func overloaded() Step {
	return byProvider(
		openAIError(503, "server_error", "server_is_overloaded", "The server is overloaded. Try again later."),
		anthropicError(529, "overloaded_error", "Overloaded"))
}

func serverError() Step {
	return byProvider(
		openAIError(500, "server_error", nil, "The server had an error while processing your request."),
		anthropicError(500, "api_error", "Internal server error"))
}

func contextOverflow() Step {
	st := byProvider(
		openAIError(400, "invalid_request_error", "context_length_exceeded",
			"This model's maximum context length is 128000 tokens. However, your messages resulted in 200000 tokens."),
		anthropicError(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum"))
	st.FaultBy[Responses] = &Fault{Error: obj{
		"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
	}}
	return st
}

func streamError() Step {
	openAI := &Fault{Error: obj{"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "Rate limit reached. Please try again in 1s."}}
	return byProvider(openAI, &Fault{Error: obj{"type": "overloaded_error", "message": "Overloaded"}})
}
