package fleet

import (
	"slices"
	"strings"
)

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

// Providers are those that a harness of this release is known to speak to. There may be
// others, which a person's settings on a machine name.
var Providers = []string{"openai", "anthropic", "opencode", "openrouter", "google", "groq", "mistral", "deepseek", "xai"}

// Providers names those whom the harness asks, as far as it is known: by itself, with
// what accounts, and for which models.
func (h HarnessInfo) Providers() []string {
	out := []string{ProviderOf(h.Name, "")}
	for one := range strings.FieldsSeq(h.Account) {
		if p, _, ok := strings.Cut(one, "="); ok {
			out = append(out, p)
		}
	}
	for _, m := range h.Models {
		out = append(out, ProviderOf(h.Name, m))
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(p string) bool { return p == "" })
}
