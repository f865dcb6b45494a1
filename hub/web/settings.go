package web

import (
	"net/url"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// settings that may be set, with what checks a value that is not empty.
var settings = map[string]func(*Server, string) error{
	"default_harness": func(s *Server, v string) error {
		if v == "exec" {
			return wrong(fleet.BadRequest, "default_harness: exec runs commands and is no agent's harness")
		}
		return s.knownHarness(v)
	},
	fleet.SettingFloorSelect: func(s *Server, v string) error { return checkFloor(fleet.SettingFloorSelect, v) },
	fleet.SettingFloorStart:  func(s *Server, v string) error { return checkFloor(fleet.SettingFloorStart, v) },
	fleet.SettingRetryPause: func(_ *Server, v string) error {
		_, err := within(fleet.SettingRetryPause, v, time.Second, fleet.MaxRetryPause)
		return err
	},
	fleet.SettingModelPriority: func(s *Server, v string) error {
		list, err := fleet.ParseChoices(v)
		if err != nil {
			return wrong(fleet.BadRequest, "%s: %s; give choices with commas between, such as codex:gpt-5.2,claude:opus,opencode", fleet.SettingModelPriority, err)
		}
		for _, c := range list[:1] {
			if err := checkChoice(fleet.SettingModelPriority, c, s.knownHarness); err != nil {
				return err
			}
		}
		return checkChoices(fleet.SettingModelPriority, list, s.knownHarness)
	},
	fleet.SettingAutoProvision: func(_ *Server, v string) error {
		if _, ok := fleet.ParseAutoProvision(v); !ok {
			return wrong(fleet.BadRequest, "%s %s is no list of %s, with commas between", fleet.SettingAutoProvision, quote(v), strings.Join(fleet.Provisionable(), ", "))
		}
		return nil
	},
	fleet.SettingProvisioning: func(_ *Server, v string) error {
		if v != fleet.ProvisioningSwitchOff {
			return wrong(fleet.BadRequest, "%s %s: want off, or an empty value, which allows it", fleet.SettingProvisioning, quote(v))
		}
		return nil
	},
	fleet.SettingReleaseKey: func(_ *Server, v string) error {
		if !fleet.IsReleaseKey(v) {
			return wrong(fleet.BadRequest, "%s %s is no minisign public key, such as RWQ… with 56 characters", fleet.SettingReleaseKey, quote(v))
		}
		return nil
	},
	fleet.SettingAlertWebhook: func(_ *Server, v string) error {
		u, err := url.Parse(v)
		switch {
		case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || len(v) > 2048:
			return wrong(fleet.BadRequest, "%s %s is not a URL such as https://example.com/alerts, of at most 2048 bytes", fleet.SettingAlertWebhook, quote(v))
		case u.User != nil:
			return wrong(fleet.BadRequest, "%s: the URL carries credentials, which would be recorded; leave them out", fleet.SettingAlertWebhook)
		case u.Fragment != "":
			return wrong(fleet.BadRequest, "%s: the URL has a fragment, which no server is sent; leave out what is behind #", fleet.SettingAlertWebhook)
		}
		return nil
	},
}

func checkFloor(name, v string) error {
	n, err := fleet.ParseSize(v)
	if err != nil || n > fleet.MaxFloor {
		return wrong(fleet.BadRequest, "%s %s is not a size such as 500MiB or 20GiB, of at most 1 PiB", name, quote(v))
	}
	return nil
}

// shownSettings are the settings as viewers may see them: the path of a webhook is often
// what lets one post to it.
func shownSettings(set map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range set {
		if k == fleet.SettingAlertWebhook {
			if u, err := url.Parse(v); err == nil && strings.Trim(u.Path+u.RawQuery, "/") != "" {
				v = u.Scheme + "://" + u.Host + "/…"
			}
		}
		out[k] = v
	}
	return out
}
