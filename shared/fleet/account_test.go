package fleet

import "testing"

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
