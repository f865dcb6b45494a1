package fleet

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The settings of a cluster that placement goes by, as an admin sets them. What is not
// set, or cannot be read, has the default.
const (
	SettingFloorSelect   = "floor_select"   // see Floors; a size
	SettingFloorStart    = "floor_start"    // see Floors; a size
	SettingRetryPause    = "retry_pause"    // before the first automatic retry; a duration
	SettingModelPriority = "model_priority" // choices, in the order in which jobs fall forward along them
	SettingAlertWebhook  = "alert_webhook"  // URL that alerts are posted to
	SettingReleaseKey    = "release_key"    // minisign public key that programs of releases are signed by
	SettingAutoProvision = "auto_provision" // what a new runner is given once, see ParseAutoProvision
	SettingProvisioning  = "provisioning"   // off stops that anything is installed on runners
)

// Bounds of settings.
const (
	MaxFloor      = 1 << 50 // bytes
	MaxRetryPause = time.Hour
)

// FloorsOf gives the floors that a cluster's settings name.
func FloorsOf(settings map[string]string) Floors {
	f := Floors{Select: DefaultSelectFloor, Start: DefaultStartFloor}
	if n, err := ParseSize(settings[SettingFloorSelect]); err == nil && n <= MaxFloor {
		f.Select = n
	}
	if n, err := ParseSize(settings[SettingFloorStart]); err == nil && n <= MaxFloor {
		f.Start = n
	}
	return f
}

// RetryPauseOf gives the pause before a first retry that a cluster's settings name.
func RetryPauseOf(settings map[string]string) time.Duration {
	if d, err := time.ParseDuration(settings[SettingRetryPause]); err == nil && d >= time.Second && d <= MaxRetryPause {
		return d
	}
	return RetryPause
}

// ParseSize reads a number of bytes: digits, or a number with B, KiB, MiB, GiB or TiB
// behind it; KB, MB, GB and TB are powers of 1000. It is never below 0.
func ParseSize(s string) (int64, error) {
	wrong := fmt.Errorf("%q is not a size such as 500MiB or 20GiB", CutText(s, 80))
	number := strings.TrimRight(s, "BKMGTi")
	unit := s[len(number):]
	var factor float64
	switch unit {
	case "", "B":
		factor = 1
	case "KiB":
		factor = 1 << 10
	case "MiB":
		factor = 1 << 20
	case "GiB":
		factor = 1 << 30
	case "TiB":
		factor = 1 << 40
	case "KB":
		factor = 1e3
	case "MB":
		factor = 1e6
	case "GB":
		factor = 1e9
	case "TB":
		factor = 1e12
	default:
		return 0, wrong
	}
	number = strings.TrimRight(number, " ")
	if strings.Trim(number, "0123456789.") != "" || number == "" {
		return 0, wrong
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || f*factor > 1<<62 {
		return 0, wrong
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil && factor == 1 {
		return n, nil // every digit of it
	}
	return int64(math.Round(f * factor)), nil
}

// ParseChoice reads a choice as String writes it.
func ParseChoice(s string) (Choice, error) {
	h, m, named := strings.Cut(strings.TrimSpace(s), ":")
	if h == "" || named && m == "" || strings.ContainsAny(h+m, ", \t\r\n") {
		return Choice{}, fmt.Errorf("%q is neither HARNESS nor HARNESS:MODEL", CutText(s, 80))
	}
	return Choice{Harness: h, Model: m}, nil
}

// ParseChoices reads choices with commas between them.
func ParseChoices(s string) ([]Choice, error) {
	var out []Choice
	for part := range strings.SplitSeq(s, ",") {
		c, err := ParseChoice(part)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// AfterOwn gives the choices behind the place of a job's own one. Where it is not in
// the list, its place is that of the first entry of the same harness, if the job names
// no model or the entry does not; else it has none, and nothing is behind it.
func AfterOwn(own Choice, list []Choice) []Choice {
	place := -1
	for i, c := range list {
		if c == own {
			place = i
			break
		}
		if place < 0 && c.Harness == own.Harness && (own.Model == "" || c.Model == "") {
			place = i
		}
	}
	if place < 0 {
		return nil
	}
	return list[place+1:]
}
