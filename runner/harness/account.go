package harness

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// Account gives a mark of the account with which the CLI would ask its provider in the
// given environment, in the form of fleet.HarnessInfo.Account; "" where that is not
// known. It tells accounts apart and does not tell what they are: the same account or
// key has the same mark on every machine.
func (h *Harness) Account(env []string) string {
	if h.account == nil {
		return ""
	}
	return h.account(env)
}

// Accounts gives the marks of all CLIs in the given environment, in the order of the
// catalogue and whether or not they are here. It reads a few small files.
func Accounts(env []string) []string {
	var marks []string
	for _, h := range catalogue {
		marks = append(marks, h.Account(env))
	}
	return marks
}

// mark gives 12 hex digits of a digest. kind says what the value is, so that no two
// kinds of credential can meet in one mark.
func mark(provider, kind, value string) string {
	if value == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("tugline account v1\x00" + provider + "\x00" + kind + "\x00" + value))
	return hex.EncodeToString(sum[:6])
}

// keyMark is the mark of the first of the variables that is set. The same key at another
// server is another account; base is "" for the provider's own.
func keyMark(env []string, provider, base string, names ...string) string {
	for _, n := range names {
		if v, _ := envValue(env, n); v != "" {
			return keyAt(provider, base, v)
		}
	}
	return ""
}

func keyAt(provider, base, key string) string {
	if key = strings.TrimSpace(key); key != "" && base != "" {
		key = strings.TrimRight(base, "/") + "\x00" + key
	}
	return mark(provider, "key", key)
}

// codexAccount reads the CLI's own store. Of a provider of the owner's the key counts.
func codexAccount(env []string) string {
	const provider = "openai"
	home, ok := folderOf(env, "CODEX_HOME", ".codex")
	if !ok {
		return keyMark(env, provider, "", "CODEX_API_KEY")
	}
	if own := codexOwnProvider(string(small(filepath.Join(home, "config.toml")))); own.name != "" {
		return keyMark(env, own.name, own.base, own.variable)
	}
	if m := keyMark(env, provider, "", "CODEX_API_KEY"); m != "" {
		return m
	}
	var store struct {
		Mode   string `json:"auth_mode"`
		Key    string `json:"OPENAI_API_KEY"`
		Tokens struct {
			Account string `json:"account_id"`
			ID      string `json:"id_token"`
		} `json:"tokens"`
	}
	if json.Unmarshal(small(filepath.Join(home, "auth.json")), &store) != nil {
		return ""
	}
	byKey := keyAt(provider, "", store.Key)
	if byKey != "" && (store.Tokens.Account == "" && store.Tokens.ID == "" || strings.EqualFold(store.Mode, "apikey")) {
		return byKey
	}
	// People of one workspace have limits of their own.
	who := strings.Trim(store.Tokens.Account+"\x00"+subject(store.Tokens.ID), "\x00")
	return mark(provider, "account", who)
}

// subject gives whom a token names, "" if it can't be read. It is not verified: it only
// tells accounts apart.
func subject(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	body, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return ""
	}
	var claims struct {
		Subject string `json:"sub"`
	}
	_ = json.Unmarshal(body, &claims)
	return claims.Subject
}

// ownProvider is a provider that the owner of the machine has set codex to.
type ownProvider struct {
	name     string // "" for the CLI's own
	variable string // that holds its key, "" if it needs none
	base     string // URL
}

func codexOwnProvider(config string) ownProvider {
	root, _, _ := strings.Cut("\n"+config, "\n[")
	m := codexProvider().FindStringSubmatch(root)
	if m == nil || m[1] == "openai" {
		return ownProvider{}
	}
	own := ownProvider{name: m[1]}
	for _, section := range strings.Split("\n"+config, "\n[") {
		title, body, _ := strings.Cut(section, "\n")
		if name := strings.TrimRight(strings.TrimSpace(title), "]"); strings.Trim(strings.TrimPrefix(name, "model_providers."), `"`) != own.name {
			continue
		}
		if k := codexEnvKey().FindStringSubmatch(body); k != nil {
			own.variable = k[1]
		}
		if k := codexBaseURL().FindStringSubmatch(body); k != nil {
			own.base = k[1]
		}
	}
	return own
}

// claudeAccount goes by the order in which the CLI takes its credentials.
func claudeAccount(env []string) string {
	const provider = "anthropic"
	base, _ := envValue(env, "ANTHROPIC_BASE_URL")
	if m := keyMark(env, provider, base, claudeKeys...); m != "" {
		return m
	}
	for _, cloud := range claudeClouds {
		if v, _ := envValue(env, cloud); v != "" {
			return "" // an account of somebody else's cloud
		}
	}
	dir, ok := folderOf(env, "CLAUDE_CONFIG_DIR", ".claude")
	if !ok {
		return ""
	}
	settings := filepath.Join(filepath.Dir(dir), ".claude.json") // beside the folder, unless that was named
	if v, _ := envValue(env, "CLAUDE_CONFIG_DIR"); v != "" {
		settings = filepath.Join(dir, ".claude.json")
	}
	var s struct {
		Account struct {
			ID           string `json:"accountUuid"`
			Organization string `json:"organizationUuid"`
		} `json:"oauthAccount"`
	}
	_ = json.Unmarshal(small(settings), &s)
	if s.Account.ID != "" {
		return mark(provider, "account", s.Account.ID+"\x00"+s.Account.Organization)
	}
	var store struct {
		OAuth struct {
			Refresh string `json:"refreshToken"`
			Access  string `json:"accessToken"`
		} `json:"claudeAiOauth"`
	}
	_ = json.Unmarshal(small(filepath.Join(dir, ".credentials.json")), &store)
	if store.OAuth.Refresh != "" {
		return mark(provider, "refresh", store.OAuth.Refresh)
	}
	return mark(provider, "access", store.OAuth.Access)
}

// opencodeProviders are those whose key opencode takes from the environment.
var opencodeProviders = map[string][]string{
	"opencode": {"OPENCODE_API_KEY"}, "anthropic": {"ANTHROPIC_API_KEY"}, "openai": {"OPENAI_API_KEY"}, "openrouter": {"OPENROUTER_API_KEY"},
	"google": {"GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"}, "groq": {"GROQ_API_KEY"}, "mistral": {"MISTRAL_API_KEY"},
	"deepseek": {"DEEPSEEK_API_KEY"}, "xai": {"XAI_API_KEY"},
}

// opencodeAccount gives a mark for each provider that the CLI has credentials for: from
// the environment, over that from its settings, over that from its own store.
func opencodeAccount(env []string) string {
	marks := map[string]string{}
	set := func(provider, m string) {
		provider = strings.ToLower(provider)
		if m != "" && provider != "" && len(provider) <= 100 && !strings.ContainsAny(provider, " \t\r\n=") {
			marks[provider] = m
		}
	}
	for provider, names := range opencodeProviders {
		set(provider, keyMark(env, provider, "", names...))
	}
	home, _ := envValue(env, "HOME")
	folder := func(variable, below string) string {
		if v, _ := envValue(env, variable); v != "" {
			return v
		}
		return filepath.Join(home, below)
	}
	content, _ := envValue(env, "OPENCODE_CONFIG_CONTENT")
	dir := filepath.Join(folder("XDG_CONFIG_HOME", ".config"), "opencode")
	for _, text := range [][]byte{small(filepath.Join(dir, "opencode.jsonc")), small(filepath.Join(dir, "opencode.json")), []byte(content)} {
		var settings struct {
			Provider map[string]struct {
				Options struct {
					Key  string `json:"apiKey"`
					Base string `json:"baseURL"`
				} `json:"options"`
			} `json:"provider"`
		}
		_ = json.Unmarshal(text, &settings)
		for provider, p := range settings.Provider {
			if name, ok := strings.CutPrefix(p.Options.Key, "{env:"); ok {
				set(provider, keyMark(env, provider, p.Options.Base, strings.TrimSuffix(name, "}")))
			} else {
				set(provider, keyAt(provider, p.Options.Base, p.Options.Key))
			}
		}
	}
	var store map[string]struct {
		Type    string `json:"type"`
		Key     string `json:"key"`
		Account string `json:"accountId"`
		Access  string `json:"access"`
		Refresh string `json:"refresh"`
	}
	_ = json.Unmarshal(small(filepath.Join(folder("XDG_DATA_HOME", ".local/share"), "opencode", "auth.json")), &store)
	for provider, s := range store {
		switch {
		case s.Key != "":
			set(provider, keyAt(provider, "", s.Key))
		case s.Account != "" || subject(s.Access) != "":
			set(provider, mark(provider, "account", strings.Trim(s.Account+"\x00"+subject(s.Access), "\x00")))
		default:
			set(provider, mark(provider, "refresh", s.Refresh))
		}
	}
	var out []string
	for _, provider := range slices.Sorted(maps.Keys(marks)) {
		if len(out) < maxAccounts {
			out = append(out, provider+"="+marks[provider])
		}
	}
	return strings.Join(out, " ")
}

// maxAccounts bounds the providers that are told of one CLI.
const maxAccounts = 16

// AccountOf gives the mark of the account that a run asks with, for the provider that
// serves its model.
func (h *Harness) AccountOf(env []string, model string) string {
	return fleet.HarnessInfo{Name: h.Name, Account: h.Account(env)}.AccountOf(fleet.ProviderOf(h.Name, model))
}
