package harness

import (
	"encoding/base64"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// account gives the mark with files below a home of its own.
func account(t *testing.T, cli string, files map[string]string, env ...string) string {
	t.Helper()
	home := t.TempDir()
	for name, text := range files {
		plainFile(t, filepath.Join(home, name), text)
	}
	h, _ := Lookup(cli)
	return h.Account(append(env, "HOME="+home))
}

func token(claims string) string {
	return "x." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".y"
}

// Each group is of accounts that differ; within a line all are the same account.
func TestAccountsAreToldApart(t *testing.T) {
	type way struct {
		files map[string]string
		env   []string
	}
	one := func(name, text string, env ...string) way { return way{map[string]string{name: text}, env} }
	const auth, share = ".codex/auth.json", ".local/share/opencode/auth.json"
	for cli, accounts := range map[string][][]way{
		"codex": {
			{one(auth, `{"OPENAI_API_KEY":"sk-one-0123456789"}`), one("x", "", "CODEX_API_KEY=sk-one-0123456789"),
				one(auth, `{"auth_mode":"apikey","OPENAI_API_KEY":"sk-one-0123456789","tokens":{"account_id":"a"}}`)},
			{one(auth, `{"OPENAI_API_KEY":"sk-two-0123456789"}`)},
			{one(auth, `{"OPENAI_API_KEY":null,"tokens":{"account_id":"a","access_token":"1"},"last_refresh":"x"}`),
				one(auth, `{"OPENAI_API_KEY":null,"tokens":{"account_id":"a","access_token":"2"},"last_refresh":"y"}`)},
			{one(auth, `{"tokens":{"account_id":"b"}}`)},
			{one(auth, `{"tokens":{"account_id":"a","id_token":"`+token(`{"sub":"ann"}`)+`"}}`), one(auth, `{"tokens":{"account_id":"a","id_token":"`+token(`{"exp":1,"sub":"ann"}`)+`"}}`)},
			{one(auth, `{"tokens":{"account_id":"a","id_token":"`+token(`{"sub":"bob"}`)+`"}}`)},
			{{map[string]string{".codex/config.toml": "model_provider = \"own\"\n[model_providers.own]\nenv_key = \"OWN_KEY\"\n", auth: `{"OPENAI_API_KEY":"sk-one-0123456789"}`}, []string{"OWN_KEY=sk-one-0123456789"}}},
			{{map[string]string{".codex/config.toml": "model_provider = \"own\"\n[model_providers.own]\nbase_url = \"http://h/v1\"\nenv_key = \"OWN_KEY\"\n"}, []string{"OWN_KEY=sk-one-0123456789"}},
				{map[string]string{".codex/config.toml": "model_provider = 'own'\n\n[model_providers.own]\nenv_key = 'OWN_KEY'\nbase_url = 'http://h/v1/'\n"}, []string{"OWN_KEY=sk-one-0123456789"}}},
		},
		"claude": {
			{one("x", "", "ANTHROPIC_API_KEY=sk-ant-1"), one(".claude.json", `{"oauthAccount":{"accountUuid":"u1"}}`, "ANTHROPIC_API_KEY=sk-ant-1")},
			{one("x", "", "CLAUDE_CODE_OAUTH_TOKEN=sk-ant-oat-1")},
			{one("x", "", "ANTHROPIC_API_KEY=sk-ant-1", "ANTHROPIC_BASE_URL=http://h")},
			{one(".claude.json", `{"oauthAccount":{"accountUuid":"u1","organizationUuid":"o"},"numStartups":3}`),
				{map[string]string{".claude.json": `{"oauthAccount":{"accountUuid":"u1","organizationUuid":"o"}}`, ".claude/.credentials.json": `{"claudeAiOauth":{"refreshToken":"r"}}`}, nil}},
			{one(".claude.json", `{"oauthAccount":{"accountUuid":"u2","organizationUuid":"o"}}`)},
			{one(".claude/.credentials.json", `{"claudeAiOauth":{"refreshToken":"r1","accessToken":"a"}}`), one(".claude/.credentials.json", `{"claudeAiOauth":{"refreshToken":"r1","accessToken":"b"}}`)},
			{one(".claude/.credentials.json", `{"claudeAiOauth":{"accessToken":"r1"}}`)},
		},
		"opencode": {
			{one(share, `{"anthropic":{"type":"api","key":"k1"}}`), one("x", "", "ANTHROPIC_API_KEY=k1"),
				one(".config/opencode/opencode.json", `{"provider":{"anthropic":{"options":{"apiKey":"{env:MINE}"}}}}`, "MINE=k1"), one("x", "", `OPENCODE_CONFIG_CONTENT={"provider":{"anthropic":{"options":{"apiKey":"k1"}}}}`),
				one(share, `{"anthropic":{"type":"api","key":"k1"}}`, "ANTHROPIC_API_KEY=k2")},
			{one("x", "", `OPENCODE_CONFIG_CONTENT={"provider":{"anthropic":{"options":{"apiKey":"k1","baseURL":"http://h"}}}}`)},
			{one(share, `{"anthropic":{"type":"oauth","refresh":"k1","access":"2"}}`), one(share, `{"anthropic":{"type":"oauth","refresh":"k1","access":"3"}}`)},
			{one(share, `{"openai":{"type":"oauth","accountId":"a","access":"3","refresh":"4"}}`), one(share, `{"openai":{"type":"oauth","accountId":"a","access":"5","refresh":"6"}}`)},
			{one(share, `{"anthropic":{"type":"api","key":"k1"},"openai":{"type":"api","key":"k1"}}`)},
		},
	} {
		seen := map[string]int{}
		for i, ways := range accounts {
			for k, w := range ways {
				got := account(t, cli, w.files, w.env...)
				if got == "" {
					t.Errorf("%s: account %d, way %d has no mark", cli, i, k)
				}
				if was, ok := seen[got]; ok && was != i || !ok && k > 0 {
					t.Errorf("%s: account %d, way %d has the mark %s, which is not that of the account", cli, i, k, got)
				}
				seen[got] = i
				for _, secret := range []string{"sk-", "k1", "u1", "ann"} {
					if strings.Contains(got, secret) {
						t.Errorf("%s: the mark %s tells the account", cli, got)
					}
				}
				if cli != "opencode" && !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(got) {
					t.Errorf("%s: mark %q", cli, got)
				}
			}
		}
	}
}

func TestAccountsThatAreNotKnown(t *testing.T) {
	for cli, ways := range map[string][]map[string]string{
		"codex":    {nil, {".codex/auth.json": "{"}, {".codex/auth.json": `{"tokens":{}}`}, {".codex/config.toml": "model_provider = \"own\"\n", ".codex/auth.json": `{"OPENAI_API_KEY":"k"}`}},
		"claude":   {nil, {".claude.json": `{"oauthAccount":7}`}},
		"opencode": {nil, {".local/share/opencode/auth.json": `[]`}, {".local/share/opencode/auth.json": `{"a b":{"key":"k"},"c=d":{"key":"k"}}`}},
		"exec":     {nil},
	} {
		for _, files := range ways {
			if got := account(t, cli, files); got != "" {
				t.Errorf("%s with %v has the mark %s", cli, files, got)
			}
		}
	}
	if got := account(t, "claude", map[string]string{".claude.json": `{"oauthAccount":{"accountUuid":"u1"}}`}, "CLAUDE_CODE_USE_BEDROCK=1"); got != "" {
		t.Errorf("an account of another cloud has the mark %s", got)
	}
}

// A run's account is that of its own environment and of the provider of its model.
func TestAccountOfARun(t *testing.T) {
	env := []string{"HOME=" + t.TempDir(), "ANTHROPIC_API_KEY=k1", "OPENAI_API_KEY=k2"}
	oc, _ := Lookup("opencode")
	cl, _ := Lookup("claude")
	if got, want := oc.AccountOf(env, "anthropic/sonnet"), cl.AccountOf(env, "sonnet"); got != want || got == "" {
		t.Errorf("the same key has the marks %q and %q", got, want)
	}
	if a, b := oc.AccountOf(env, "openai/gpt"), oc.AccountOf(env, "anthropic/sonnet"); a == b || a == "" {
		t.Errorf("two keys have the marks %q and %q", a, b)
	}
	if got := oc.AccountOf(env, ""); got != "" {
		t.Errorf("without a model it is %q; it could be either", got)
	}
}

// A provider whose key an agent takes from the environment is one that the hub knows.
func TestProvidersAreKnown(t *testing.T) {
	for p := range opencodeProviders {
		if !slices.Contains(fleet.Providers, p) {
			t.Errorf("%s is none of %v", p, fleet.Providers)
		}
	}
}
