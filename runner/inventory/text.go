package inventory

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"tugline.dev/tugline/shared/fleet"
)

// Bounds of texts, in bytes.
const (
	maxTitle   = 120
	maxModel   = 100
	maxMessage = 4 << 10
	maxRaw     = 32 << 10 // of a text that is looked at; far beyond what of it is told, so that no secret is cut in two
	maxCall    = 400      // of what a tool was called with
)

// shapes are what credentials look like that no name gives away.
var shapes = lazily(`(?i)` + strings.Join([]string{
	`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`,
	`\bsk-[a-z0-9_-]{16,}`,
	`\bgh[pousr]_[a-z0-9]{20,}`,
	`\bgithub_pat_[a-z0-9_]{20,}`,
	`\bglpat-[a-z0-9_-]{16,}`,
	`\b(?:AKIA|ASIA)[0-9A-Z]{16}\b`,
	`\bxox[abeprs]-[a-z0-9-]{10,}`,
	`\bAIza[0-9a-z_-]{30,}`,
	`\bnpm_[a-z0-9]{30,}`,
	`\bhf_[a-z0-9]{30,}`,
	`\bya29\.[a-z0-9_-]{20,}`,
	`\btgl_[a-z0-9_-]{20,}`,
	`\btug(?:1|hub1)_[a-z0-9_-]{20,}`,
	`\b(?:bearer|basic)\s+[a-z0-9+/=._-]{16,}`,
	`\beyJ[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}\.[a-z0-9_-]*`,
}, "|"))

// values are what follows a word that announces a credential; the first group of each
// stays as it is.
var values = lazily(`(?i)(` + strings.Join([]string{
	`\b[a-z0-9_.-]*(?:api[_-]?key|apikey|token|secret|passwd|password|passphrase)["']?\s*[:=]\s*["']?`,
	`\b[a-z][a-z0-9+.-]*://[^\s/:@]*:`,
}, "|") + `)([^\s"'@,;]{6,})`)

// text gives a text as it may be told: masked, without control characters, and cut.
func (l *look) text(s string, most int) string {
	s = strings.TrimSpace(plain(fleet.CutText(s, maxRaw)))
	if l.cfg.Hide != nil {
		s = l.cfg.Hide(s)
	}
	return strings.TrimSpace(fleet.CutText(Masked(s), most))
}

// Masked gives a text without what looks like a credential, by its shape or by a word
// before it.
func Masked(s string) string {
	s = shapes().ReplaceAllStringFunc(s, stars)
	return values().ReplaceAllStringFunc(s, func(hit string) string {
		at := values().FindStringSubmatchIndex(hit)
		return hit[:at[3]] + stars(hit[at[4]:])
	})
}

// stars are as long as what they stand for: nothing moves that was beyond a cut.
func stars(s string) string { return strings.Repeat("*", len(s)) }

// plain is a text without control characters but for tabs and ends of lines.
func plain(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.Map(func(r rune) rune {
		if r == '\r' || r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, s)
}

// firstLine gives the first line with something in it, its blanks made one each.
func firstLine(s string) string {
	for line := range strings.SplitSeq(fleet.CutText(s, maxRaw), "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			return line
		}
	}
	return ""
}

var injected = lazily(`^\s*(<[A-Za-z][A-Za-z0-9_-]*[ >]|# AGENTS\.md instructions)`)

// said says whether a person wrote a text. What the CLIs put into a person's mouth is in tags.
func said(s string) bool { return strings.TrimSpace(s) != "" && !injected().MatchString(s) }
