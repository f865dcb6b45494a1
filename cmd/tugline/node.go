package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"go.yaml.in/yaml/v3"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
)

// caName is the file in a hub's data directory with the certificates that people
// need who speak to it; the hub keeps it up to date.
const caName = "ca.pem"

// runnerDir is where `tugline runner run` keeps its data unless told otherwise.
func (a *app) runnerDir() string {
	return filepath.Join(a.home("XDG_DATA_HOME", ".local/share"), "runner")
}

// hubFailed gives a hub's end the exit code that a service manager acts on.
func hubFailed(err error) error {
	var fatal *consensus.FatalError
	var newer *hub.NewerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &newer):
		return &failure{code: exitStandDown, text: "the hub cannot go on: " + sentence(err) + "; its data is untouched", cause: err}
	case errors.Is(err, hub.ErrNoCluster):
		return &failure{code: exitUsage, text: err.Error(), cause: err}
	case errors.Is(err, state.ErrUnknownEntry):
		return &failure{code: exitStandDown, text: "the hub cannot go on: " + err.Error() + "; install the newer version, the data is untouched", cause: err}
	case errors.Is(err, hub.ErrRemoved), errors.Is(err, hub.ErrReplace):
		return &failure{code: exitStandDown, text: sentence(err), cause: err}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, fleet.DiskFull):
		return &failure{code: exitFailed, text: "the hub cannot go on, for its disk is full: " + err.Error() + "; free some space on the disk of its data directory, then start it again; its data is untouched, and other hub nodes go on without it", cause: err}
	case errors.As(err, &fatal), errors.Is(err, hub.ErrDisk):
		return &failure{code: exitFailed, text: "the hub cannot go on, for its disk failed: " + err.Error() + "; mend the disk, then start it again", cause: err}
	}
	return &failure{code: exitFailed, text: "the hub does not run: " + err.Error(), cause: err}
}

// runnerFailed does the same for a runner.
func runnerFailed(err error) error {
	var away *runner.StandDown
	var newer *durable.Newer
	switch {
	case err == nil:
		return nil
	case errors.As(err, &newer):
		return &failure{code: exitStandDown, text: "the runner does not run: " + newer.Error(), cause: err}
	case errors.As(err, &away):
		return &failure{code: exitStandDown, text: away.Text(), cause: err}
	case errors.Is(err, runner.ErrUpdated):
		return err
	case errors.Is(err, journal.ErrLocked):
		return &failure{code: exitFailed, text: "another runner runs on this data directory: stop it first, or give this one another --data-dir", cause: err}
	}
	code := exitCode(err)
	for _, c := range []fleet.Code{fleet.TicketInvalid, fleet.TicketExpired, fleet.TicketUsed, fleet.ClusterMismatch, fleet.RunnerUnknown} {
		if errors.Is(err, c) {
			code = exitUsage // another ticket is needed
		}
	}
	return &failure{code: code, text: "the runner does not run: " + withoutCodes(err.Error(), err), cause: err}
}

// untilStopped gives a context that ends at the first signal to stop. At a second
// one the process ends as signals end one.
func (a *app) untilStopped(ctx context.Context) (context.Context, func()) {
	signals, off := a.interrupts()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGHUP && !a.ttyErr {
					continue // a service is told to look again; a terminal that goes away means to stop
				}
				off()
				signal.Reset(os.Interrupt, syscall.SIGTERM)
				cancel()
				return
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() {
		cancel()
		off()
		wg.Wait()
	}
}

// logger writes a node's own log: to a terminal or a service manager, and to a
// file that is kept from growing.
func logger(level string, w io.Writer) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usage("--log-level %q is none of debug, info, warn, error", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}

// yamlOf writes a runner's rules as their file has them.
func yamlOf(v any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := errors.Join(e.Encode(v), e.Close())
	return b.Bytes(), err
}

// ownerShown gives a runner's rules under the names of their file.
func ownerShown(o runner.Owner) any {
	var m map[string]any
	b, err := yamlOf(o)
	if err == nil {
		err = yaml.Unmarshal(b, &m)
	}
	if err != nil {
		return json.RawMessage("null")
	}
	return m
}
