package probe

import (
	"context"
	"regexp"
	"sync"
	"time"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

const (
	// composeEvery lies between two checks of Compose while nothing asks for one at once,
	// as its version is a command that costs up to half a second of a processor. It is well
	// within fleet.DockerFresh. Where Compose did not answer it is asked earlier.
	composeEvery = 3 * time.Minute
	composeAgain = time.Minute
	commandGrace = 500 * time.Millisecond
)

// compose is what Compose answered when it was last asked.
type compose struct {
	asked   time.Time // zero: it is to be asked again
	version string
	by      string // the command that answered
	detail  string // why none did
}

var composeVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)version:? v?(\d+\.\d+[0-9A-Za-z.+_-]*)`) })

// verify asks Compose for its version: as a part of docker, then as a command of its
// own. The daemon answered at the given time.
func (s *Sampler) verify(ctx context.Context, at time.Time) compose {
	c := compose{asked: at, detail: "Compose does not answer"}
	for i, argv := range [][]string{{"docker", "compose", "version"}, {"docker-compose", "version"}} {
		by := "docker compose"
		if i == 1 {
			by = argv[0]
		}
		bound, cancel := context.WithTimeout(ctx, commandTime)
		version, err := ask(bound, &s.looks, by, "", func(ctx context.Context) (string, error) {
			res, err := process.Run(ctx, process.Cmd{Argv: argv, Env: s.cfg.Env, Grace: commandGrace, Limit: 16 << 10})
			if err != nil {
				return "", err
			}
			m := composeVersion().FindSubmatch(res.Stdout)
			if m == nil {
				return "", ErrUnknown
			}
			return string(m[1]), nil
		})
		cancel()
		if err == nil {
			c.version, c.by, c.detail = version, by, ""
			break
		}
		if i == 0 {
			c.detail = fleet.CutText("Compose does not answer: "+detail(err), fleet.MaxDetail)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compose = c
	if c.version != "" && at.After(s.verified) {
		s.verified = at
	}
	return c
}
