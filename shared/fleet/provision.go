package fleet

import (
	"slices"
	"strings"
	"time"
)

// ProvisionState is how far an asking for an installation has come.
type ProvisionState string

// The states. The last three are ends: nothing is tried again by itself.
const (
	ProvisionQueued    ProvisionState = "queued"
	ProvisionDelivered ProvisionState = "delivered" // the runner has taken it on
	ProvisionSucceeded ProvisionState = "succeeded"
	ProvisionFailed    ProvisionState = "failed"
	ProvisionCancelled ProvisionState = "cancelled"
)

// Provision is one asking for a program to be installed on a runner. It names the
// credentials that go with it, and never has their values.
type Provision struct {
	ID           string         `json:"id"`
	Runner       RunnerID       `json:"runner"`
	What         string         `json:"what"`
	Version      string         `json:"version,omitempty"` // asked for; empty: the newest
	Credentials  []string       `json:"credentials,omitempty"`
	PreserveAuth bool           `json:"preserve_auth,omitempty"` // nothing of the login may be touched
	State        ProvisionState `json:"state"`
	AskedBy      string         `json:"asked_by"`
	AskedAt      time.Time      `json:"asked_at"`
	DeliveredAt  *time.Time     `json:"delivered_at,omitempty"`
	EndedAt      *time.Time     `json:"ended_at,omitempty"`
	Installed    string         `json:"installed,omitempty"` // the version that is there now
	Class        string         `json:"class,omitempty"`     // why it failed, one of ProvisionClasses
	Detail       string         `json:"detail,omitempty"`
}

// Open says whether it has not ended.
func (p *Provision) Open() bool { return p.State == ProvisionQueued || p.State == ProvisionDelivered }

// Why installations fail.
const (
	ProvisionPolicy      = "owner_policy" // the owner's rules do not have it
	ProvisionCredentials = "credentials"  // they can't be read, or are gone
	ProvisionStorage     = "storage"
	ProvisionNoNPM       = "npm_missing"
	ProvisionInstall     = "install" // npm failed
	ProvisionTimeout     = "timeout"
	ProvisionVerify      = "verify"      // what came does not run
	ProvisionInterrupted = "interrupted" // the runner ended in the middle
)

// ProvisionClasses lists why installations fail.
var ProvisionClasses = []string{
	ProvisionPolicy, ProvisionCredentials, ProvisionStorage, ProvisionNoNPM, ProvisionInstall, ProvisionTimeout, ProvisionVerify, ProvisionInterrupted,
}

// Bounds of provisioning.
const (
	MaxProvisions      = 20       // records of one runner; ended ones make room
	MaxCredential      = 16 << 10 // bytes of all values of one asking
	MaxProvisionID     = 64
	maxProvisionTarget = 64
)

// provisionable are the programs that runners can be given, with the names of the
// credentials that each may be given.
var provisionable = []struct {
	what  string
	names []string
}{
	{"codex", []string{"CODEX_API_KEY", "OPENAI_BASE_URL"}},
	{"claude", []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"}},
	{"opencode", []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY"}},
	{ProvisionBrowser, nil},
}

// ProvisionBrowser is the one of them that is no agent: a Chrome.
const ProvisionBrowser = "browser"

// Provisionable lists the programs that runners can be given.
func Provisionable() []string {
	var out []string
	for _, p := range provisionable {
		out = append(out, p.what)
	}
	return out
}

// ProvisionCredentialNames lists the credentials that a program may be given.
func ProvisionCredentialNames(what string) []string {
	for _, p := range provisionable {
		if p.what == what {
			return slices.Clone(p.names)
		}
	}
	return nil
}

// IsProvisionVersion says whether a text is a version or a tag of a package, and nothing
// that a package manager would take for an address or a path. Empty is the newest.
func IsProvisionVersion(s string) bool {
	if len(s) > maxProvisionTarget {
		return false
	}
	for i, r := range s {
		word := '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !word && (i == 0 || !strings.ContainsRune(".-+_", r)) {
			return false
		}
	}
	return true
}

// CheckProvision says what is wrong with an asking; empty is nothing.
func CheckProvision(what, version string, credentials []string, preserveAuth bool) string {
	switch {
	case !slices.Contains(Provisionable(), what):
		return "what is to be installed is none of " + strings.Join(Provisionable(), ", ")
	case !IsProvisionVersion(version):
		return "the version is neither one such as 1.2.3 nor a tag"
	case preserveAuth && len(credentials) > 0:
		return "credentials are given, and the login is to stay as it is; leave one of them out"
	}
	names := ProvisionCredentialNames(what)
	if len(names) == 0 && len(credentials) > 0 {
		return what + " takes no credentials"
	}
	for i, c := range credentials {
		if !slices.Contains(names, c) {
			return what + " takes no credential of that name; it takes " + strings.Join(names, ", ")
		}
		if slices.Contains(credentials[:i], c) {
			return "credential " + c + " is named twice"
		}
	}
	return ""
}

// ParseAutoProvision reads the setting auto_provision: what new runners are given.
func ParseAutoProvision(s string) (list []string, ok bool) {
	for w := range strings.SplitSeq(s, ",") {
		w = strings.TrimSpace(w)
		if !slices.Contains(Provisionable(), w) || slices.Contains(list, w) {
			return nil, false
		}
		list = append(list, w)
	}
	return list, true
}

// ProvisioningOff says whether the cluster's kill switch is on.
func ProvisioningOff(settings map[string]string) bool {
	return settings[SettingProvisioning] == ProvisioningSwitchOff
}

// ProvisioningSwitchOff is the value of the setting that stops all provisioning.
const ProvisioningSwitchOff = "off"
