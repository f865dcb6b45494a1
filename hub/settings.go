package hub

import (
	"fmt"
	"slices"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// unreadable says of each setting that cannot be read what holds in its place. A setting
// is checked when it is set; one of another version, or of a backup, may be anything.
func unreadable(settings map[string]string) []string {
	var out []string
	floors, bad := fleet.FloorsOf(settings), func(name, why, holds string) {
		out = append(out, fmt.Sprintf("the setting %s holds no longer: %s; %s; set it anew with `tugline hub set %s VALUE`", name, why, holds, name))
	}
	for _, f := range []struct {
		name string
		in   int64
	}{{fleet.SettingFloorSelect, floors.Select}, {fleet.SettingFloorStart, floors.Start}} {
		s := settings[f.name]
		if s == "" {
			continue
		}
		if n, err := fleet.ParseSize(s); err != nil {
			bad(f.name, err.Error(), gibibytes(f.in)+" is taken instead")
		} else if n > fleet.MaxFloor {
			bad(f.name, fmt.Sprintf("%q is over %s", s, gibibytes(fleet.MaxFloor)), gibibytes(f.in)+" is taken instead")
		}
	}
	if s := settings[fleet.SettingRetryPause]; s != "" {
		if d, err := time.ParseDuration(s); err != nil || d < time.Second || d > fleet.MaxRetryPause {
			bad(fleet.SettingRetryPause, fmt.Sprintf("%q is not a duration from 1s to %s", fleet.CutText(s, 80), fleet.MaxRetryPause), fleet.RetryPause.String()+" is taken instead")
		}
	}
	if s := settings[fleet.SettingModelPriority]; s != "" {
		if _, err := fleet.ParseChoices(s); err != nil {
			bad(fleet.SettingModelPriority, err.Error(), "jobs fall forward along nothing but their own list")
		}
	}
	if s := settings[fleet.SettingAutoProvision]; s != "" {
		if _, ok := fleet.ParseAutoProvision(s); !ok {
			bad(fleet.SettingAutoProvision, fmt.Sprintf("%q is no list of programs", fleet.CutText(s, 80)), "new runners are given nothing")
		}
	}
	if s := settings[fleet.SettingReleaseKey]; s != "" && !fleet.IsReleaseKey(s) {
		bad(fleet.SettingReleaseKey, fmt.Sprintf("%q is no minisign public key", fleet.CutText(s, 80)), "runners that enrol are told none")
	}
	if s := settings[fleet.SettingAlertWebhook]; s != "" {
		if _, err := webhookURL(s); err != nil {
			bad(fleet.SettingAlertWebhook, err.Error(), "alerts are posted nowhere")
		}
	}
	return out
}

// judgeSettings says in the log what of the settings cannot be read, when that changes.
func (h *Hub) judgeSettings() {
	bad := unreadable(h.entries.View().Meta().Settings)
	var was []string
	if p := h.badSettings.Swap(&bad); p != nil {
		was = *p
	}
	for _, s := range bad {
		if !slices.Contains(was, s) {
			h.log.Warn("a setting cannot be read", "err", s)
		}
	}
}
