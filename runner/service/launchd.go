package service

import (
	"context"
	"fmt"
)

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
		if err := w.command(ctx, "launchctl", "bootout", d+"/"+Label); err != nil {
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
		if err := succeed(ctx, c, "launchctl", "bootout", d+"/"+Label); err != nil {
			return err
		}
	}
	return removeUnit(l.Unit, say)
}
