package fleet

import (
	"strings"
	"testing"
)

func TestAccountOf(t *testing.T) {
	for _, c := range []struct{ name, account, provider, want string }{
		{"codex", "abc", "openai", "abc"},
		{"codex", "", "openai", ""},
		{"opencode", "anthropic=a openai=b", "openai", "b"},
		{"opencode", "anthropic=a openai=b", "anthropic", "a"},
		{"opencode", "anthropic=a openai=b", "google", ""},
		{"opencode", "anthropic=a openai=b", "opencode", ""},
		{"opencode", "anthropic=a", "opencode", "a"},
		{"opencode", "anthropic=a", "openai", ""},
		{"opencode", "=", "opencode", ""},
	} {
		if got := (HarnessInfo{Name: c.name, Account: c.account}).AccountOf(c.provider); got != c.want {
			t.Errorf("account %q of %s for %s is %q; want %q", c.account, c.name, c.provider, got, c.want)
		}
	}
}

func TestProvidersOfHarness(t *testing.T) {
	for _, c := range []struct {
		h    HarnessInfo
		want string
	}{
		{HarnessInfo{Name: "exec", Account: "x"}, ""},
		{HarnessInfo{Name: "codex", Account: "abc", Models: []string{"gpt-5.2"}}, "openai"},
		{HarnessInfo{Name: "opencode"}, "opencode"},
		{HarnessInfo{Name: "opencode", Account: "openai=a home=b =c", Models: []string{"Ollama/q", "ollama/r"}}, "home ollama openai opencode"},
	} {
		if got := strings.Join(c.h.Providers(), " "); got != c.want {
			t.Errorf("%+v asks %q; want %q", c.h, got, c.want)
		}
	}
}
