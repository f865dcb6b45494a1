package service

import (
	"context"
	"fmt"
	"time"
)

// bootoutPatience is how long launchd may take to end a service: it comes back from
// bootout before that, and refuses to start one of the same name meanwhile.
const bootoutPatience = 45 * time.Second

// bootout has launchd end a service and waits until it is gone.
func bootout(ctx context.Context, c Control, target string) error {
	if err := succeed(ctx, c, "launchctl", "bootout", target); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bootoutPatience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, there := says(ctx, c, "launchctl", "print", target); !there && ctx.Err() == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("launchd does not end %s: %w", target, ctx.Err())
		}
	}
}

// domains gives where launchd may have the service, the best first: in the session at the
// screen where there is one, which has the user's keychain, else in the background of the
// user. Installed over ssh only the latter may be there.
func domains(ctx context.Context, l Layout, c Control, uid int) []string {
	if l.Mode == Daemon {
		return []string{"system"}
	}
	gui, background := fmt.Sprintf("gui/%d", uid), fmt.Sprintf("user/%d", uid)
	if _, ok := says(ctx, c, "launchctl", "print", gui); ok {
		return []string{gui, background}
	}
	return []string{background}
}

// launchd has launchd run the service as it is installed now.
func (w *work) launchd(ctx context.Context) error {
	all := domains(ctx, w.Layout, w.Control, w.UID)
	if w.Layout.Mode == Agent && len(all) == 1 {
		w.Note("nobody is logged in at the screen, so the runner runs in the background (" + all[0] + "), without the keychain of a login; run this again after a login there")
	}
	here := false
	for i, d := range all {
		if _, there := says(ctx, w.Control, "launchctl", "print", d+"/"+Label); !there {
			continue
		}
		if i == 0 && !w.restart {
			here = true
			continue
		}
		target := d + "/" + Label
		if err := w.do("command: launchctl bootout "+target, func() error { return bootout(ctx, w.Control, target) }); err != nil {
			return err
		}
	}
	if here {
		return nil
	}
	if err := w.command(ctx, "launchctl", "enable", all[0]+"/"+Label); err != nil {
		return err
	}
	return w.command(ctx, "launchctl", "bootstrap", all[0], w.Layout.Unit)
}

func stopLaunchd(ctx context.Context, l Layout, c Control, uid int, say func(string)) error {
	for _, d := range domains(ctx, l, c, uid) {
		if _, there := says(ctx, c, "launchctl", "print", d+"/"+Label); !there {
			continue
		}
		say("stopped " + d + "/" + Label + "; its jobs, if any, go on")
		if err := bootout(ctx, c, d+"/"+Label); err != nil {
			return err
		}
	}
	return removeUnit(l.Unit, say)
}
