package fleet

import "strings"

// AccountOf gives the mark of the account with which the harness asks a provider, empty
// where it is not known. Account is one mark, or, of a harness that speaks to many
// providers, "PROVIDER=MARK" for each with spaces between.
func (h HarnessInfo) AccountOf(provider string) string {
	if !strings.Contains(h.Account, "=") {
		return h.Account
	}
	all := strings.Fields(h.Account)
	for _, one := range all {
		if p, mark, ok := strings.Cut(one, "="); ok && p == provider {
			return mark
		}
	}
	if _, mark, ok := strings.Cut(all[0], "="); ok && len(all) == 1 && provider == h.Name {
		return mark // without a model it asks whom it knows
	}
	return ""
}
