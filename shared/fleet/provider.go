package fleet

import "strings"

// ProviderOf names who serves the model of a harness: circuits are kept by it. For a
// harness that speaks to many it is what the model's name begins with; empty where
// nothing outside the machine serves it.
func ProviderOf(harness, model string) string {
	switch harness {
	case "codex":
		return "openai"
	case "claude":
		return "anthropic"
	case "exec", "":
		return ""
	}
	if p, _, ok := strings.Cut(model, "/"); ok && p != "" {
		return strings.ToLower(p)
	}
	return harness
}
