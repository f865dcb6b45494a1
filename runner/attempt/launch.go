package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// launch starts the process: the permit and the intent are made durable in one step,
// then a supervisor is spawned. From here on the attempt may have run.
func (a *Attempt) launch(ctx context.Context, ready readiness) error {
	l, err := a.processLaunch(ready)
	if err != nil {
		return a.failedStart(ctx, ready, err.Error())
	}
	a.enter(Running, "running", "starting")
	if a.isStopped() {
		return a.end(ctx, KindGone, nil)
	}
	stoppable, release := a.stoppable(ctx)
	err = a.record(stoppable, journal.Durable, func(p *journal.Progress) {
		p.Acked, p.Intent, p.Permissions, p.Phase = true, true, ready.permissions, "running"
		p.Marker, p.Dir, p.RealDir, p.Account = l.Marker, ready.dir, "", ready.account
		if real, err := filepath.EvalSymlinks(ready.dir); err == nil && real != ready.dir {
			p.RealDir = real
		}
	})
	release()
	switch {
	case err != nil && ctx.Err() == nil && a.isStopped():
		return a.end(ctx, KindGone, nil)
	case err != nil:
		return err
	}
	// A shutdown of the runner must not cut a launch in half: the intent stands.
	status, err := process.Spawn(context.WithoutCancel(ctx), a.host.Self, a.processDir(), l)
	if err != nil {
		a.log.Warn("process could not be started", "err", err)
		return a.failedStart(ctx, ready, startText(err, l.Argv[0]))
	}
	a.tell("")
	a.log.Info("process started", "pid", status.Started.Child.PID)
	return a.follow(ctx, status)
}

func startText(err error, program string) string {
	if errors.Is(err, process.ErrNotFound) {
		return fmt.Sprintf("%s was not found, or may not be executed, on this runner", program)
	}
	return err.Error()
}

func (a *Attempt) processLaunch(ready readiness) (process.Launch, error) {
	marker, err := a.host.marker(a.asg.Fence)
	if err != nil {
		return process.Launch{}, err
	}
	t := a.asg.Spec.Timeouts
	// A command may be silent for as long as it likes, unless a bound was asked for.
	idle, first := time.Duration(0), time.Duration(0)
	if a.asg.Spec.Kind == fleet.KindAgent {
		idle, first = fleet.DefaultIdle, fleet.DefaultFirst
	}
	l := process.Launch{
		Argv: ready.launch.Argv, Dir: ready.dir, Env: ready.env.vars,
		Marker:    marker,
		OutputCap: fleet.MaxOutput, MinFreeBytes: a.host.Policy().MinFree / 4,
		Timeout: bound(t.Total, fleet.DefaultTimeout), Idle: bound(t.Idle, idle), FirstResponse: bound(t.First, first),
		StopSignal: ready.launch.StopSignal, Grace: stopGrace,
	}
	if err := a.saveHidden(ready.env.hidden); err != nil {
		return l, err
	}
	if ready.launch.Stdin != nil {
		l.StdinFile = filepath.Join(a.dir, "stdin")
		if err := os.WriteFile(l.StdinFile, ready.launch.Stdin, 0o600); err != nil {
			return l, fmt.Errorf("write the prompt: %w", err)
		}
	}
	return l, nil
}

// bound gives a timeout: 0 is the default, negative none.
func bound(asked, standard time.Duration) time.Duration {
	switch {
	case asked == 0:
		return standard
	case asked < 0:
		return 0
	}
	return asked
}

// hiddenFile holds the values to mask for as long as streams of the attempt may have
// to be derived again; a restarted runner must mask the same.
func (a *Attempt) hiddenFile() string { return filepath.Join(a.dir, "hidden.json") }

func (a *Attempt) saveHidden(values []string) error {
	if len(values) == 0 {
		return nil
	}
	b, err := json.Marshal(values)
	if err != nil {
		return fmt.Errorf("keep what is to be masked: %w", err)
	}
	if err := os.WriteFile(a.hiddenFile(), b, 0o600); err != nil {
		return fmt.Errorf("keep what is to be masked: %w", err)
	}
	return nil
}

func (a *Attempt) loadMask() (mask, error) {
	b, err := os.ReadFile(a.hiddenFile())
	if errors.Is(err, fs.ErrNotExist) {
		return mask{}, nil
	}
	if err != nil {
		return mask{}, fmt.Errorf("read what is to be masked: %w", err)
	}
	var values []string
	if err := json.Unmarshal(b, &values); err != nil {
		return mask{}, fmt.Errorf("read what is to be masked: %w", err)
	}
	return newMask(values), nil
}

// failedStart ends a permitted attempt whose process never ran.
func (a *Attempt) failedStart(ctx context.Context, ready readiness, detail string) error {
	now := time.Now().UTC()
	detail = fleet.CutText(detail, fleet.MaxDetail)
	f := Finished{
		Exit:  fleet.Exit{Code: 127, Reason: process.ReasonStartFailed, Detail: detail},
		Class: fleet.ClassHarnessStartup, Detail: detail, StartedAt: now, FinishedAt: now, Account: ready.account,
		Evidence: &fleet.Evidence{NoRepo: a.asg.Spec.Repo == nil},
	}
	if ready.tree != nil {
		f.Evidence.Base, f.Evidence.Tip, f.Evidence.Branch, f.Evidence.Descends = ready.tree.Base, ready.tree.Base, ready.tree.Branch, true
	}
	a.enter(Ending, "finishing", "")
	if err := a.insist(ctx, func() error { return a.saveDelivery(delivery{}) }); err != nil {
		return err
	}
	sealed, err := a.item(KindSealed, Sealed{})
	if err != nil {
		return err
	}
	fin, err := a.item(KindFinished, f)
	if err != nil {
		return err
	}
	a.ended()
	err = a.record(ctx, journal.Durable, func(p *journal.Progress) {
		p.Acked, p.Finished, p.Sealed = true, true, true
	}, fin, sealed)
	if err != nil {
		return err
	}
	return a.untilForgotten(ctx)
}
