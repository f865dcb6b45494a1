package attempt

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/runner/harness"
	"tugline.dev/tugline/shared/fleet"
)

// Policy is what the owner of the machine allows, at this moment.
type Policy struct {
	Permissions fleet.Permissions                           // the ceiling
	Repos       []string                                    // URL patterns; empty allows all
	Harnesses   []string                                    // allowed by name; empty allows all
	Origins     []string                                    // manual, automation; empty allows both
	EnvNames    []string                                    // patterns of more variables that jobs get
	Push        string                                      // runner, agent or never
	AllowFile   bool                                        // repositories at paths of this machine
	MinFree     int64                                       // bytes of free space below which nothing new begins
	Floors      fleet.Floors                                // the same for automations, by owner and hub
	MemoryKept  int64                                       // bytes of memory kept for everything but automations
	MemoryShare int64                                       // bytes of memory that a job of an automation is expected to take
	Models      map[string][]string                         // that jobs may name, by harness; none allows all
	Fetch       func(url string) (depth int, filter string) // what is special about a repository; may be nil
	Sessions    string                                      // what may be told of this machine's own sessions: off, list or full
	SessionDirs []string                                    // in and below which one may be gone on with
	Given       map[string][]string                         // by harness: credentials that it is started with, as NAME=value
	SessionEnv  map[string][]string                         // by harness: variables by which it finds them
}

// decline is a refusal of an assignment before it was accepted.
type decline struct {
	code   fleet.Code
	detail string
	block  bool          // no other runner can do better
	after  time.Duration // when it may have passed; 0: not before the runner's facts change
}

func (d *decline) Error() string { return d.detail }

func refuse(code fleet.Code, format string, args ...any) *decline {
	return &decline{code: code, detail: fmt.Sprintf(format, args...)}
}

// blocked refuses what no other runner can do.
func blocked(code fleet.Code, format string, args ...any) *decline {
	return &decline{code: code, detail: fmt.Sprintf(format, args...), block: true}
}

// permit checks an assignment against the owner's rules and gives the permissions
// in effect: the lesser of what the job asks for and the ceiling.
func (p Policy) permit(spec fleet.Spec, model string) (fleet.Permissions, *decline) {
	h, ok := harness.Lookup(spec.Harness)
	switch {
	case !ok:
		return "", refuse(fleet.HarnessMissing, "this runner does not know the harness %q", spec.Harness)
	case len(p.Harnesses) > 0 && !slices.Contains(p.Harnesses, spec.Harness):
		return "", refuse(fleet.OwnerPolicy, "the owner of this runner does not allow the harness %s", spec.Harness)
	case model != "" && len(p.Models[spec.Harness]) > 0 && !slices.Contains(p.Models[spec.Harness], model):
		return "", refuse(fleet.ModelMissing, "the owner of this runner does not allow the model %s with %s", model, spec.Harness)
	case len(p.Origins) > 0 && !slices.Contains(p.Origins, originKind(spec.Origin)):
		return "", refuse(fleet.OwnerPolicy, "the owner of this runner takes no %s jobs", originKind(spec.Origin))
	case spec.Push != "" && p.Push == "never":
		return "", refuse(fleet.OwnerPolicy, "the owner of this runner lets nothing be pushed from it")
	case spec.Session != nil && p.Sessions == fleet.SessionsOff:
		return "", blocked(fleet.OwnerPolicy, "the owner of this runner keeps this machine's own sessions to himself (sessions: off)")
	}
	if r := spec.Repo; r != nil && r.URL != "" {
		if isFile(r.URL) && !p.AllowFile {
			return "", refuse(fleet.OwnerPolicy, "the owner of this runner allows no repositories at paths of this machine (allow_file)")
		}
		if len(p.Repos) > 0 && !slices.ContainsFunc(p.Repos, func(pattern string) bool { return fleet.MatchURL(pattern, r.URL) }) {
			return "", refuse(fleet.OwnerPolicy, "the owner of this runner does not allow the repository %s", r.URL)
		}
	}
	want := spec.Permissions
	if want == "" {
		want = fleet.PermWorkspace
	}
	if want.Rank() == 0 {
		return "", refuse(fleet.UnknownCritical, "this runner does not know the permissions %q", want)
	}
	if p.Permissions.Rank() < want.Rank() {
		want = p.Permissions
	}
	if want.Rank() < fleet.PermWorkspace.Rank() && p.Permissions == want && !h.Can(harness.CapPermissions) {
		return "", refuse(fleet.OwnerPolicy, "the owner of this runner allows reading only, and %s can't be held to that", spec.Harness)
	}
	return want, nil
}

func originKind(o fleet.Origin) string {
	if o.Kind == "" {
		return "manual"
	}
	return o.Kind
}

func isFile(url string) bool {
	return strings.HasPrefix(url, "file:") || strings.HasPrefix(url, "/") || strings.HasPrefix(url, ".")
}
