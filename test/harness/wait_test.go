//go:build harness

package harness_test

import (
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/harness"
)

// waits shows a job whose CLI tries its provider again, silently as far as the user of the
// CLI can see, and ends it.
func waits(p *place, cli harness.CLI) {
	t := p.T
	// Codex and Claude Code are told to wait an hour; opencode doubles its own waits.
	k := task{cli: cli, scenario: "rate-limit-long", retries: 3}
	if cli != harness.Codex {
		k.scenario = "overloaded"
		k.retries = 8
	}
	id := p.Detach(p.args(k)...)
	var seen string
	p.Eventually(60*time.Second, "job "+id+" is seen waiting on its provider", func() bool {
		j := p.Job(id)
		if j.State.Ended() {
			t.Fatalf("job %s is %s, class %s, before it was seen to wait", id, j.State, j.FailureClass)
		}
		seen = j.Reason.Detail
		return j.State == fleet.Running && j.Reason.Code == "waiting_on_provider" && strings.HasPrefix(seen, "waiting on provider: ")
	})
	t.Logf("%s: %s", cli, seen)
	if out := p.Run("job", "get", id); !strings.Contains(out, seen[:len("waiting on provider: ")+4]) {
		t.Errorf("job get does not show the wait:\n%s", out)
	}
	p.Run("job", "cancel", id)
	if j := p.Ended(id, 40*time.Second); j.State != fleet.Cancelled {
		t.Errorf("job is %s after the cancel", j.State)
	}
}

// idleWait: a CLI that was waiting on its provider when its time ran out was let down by
// the provider.
func idleWait(p *place, cli harness.CLI) {
	r := p.do(task{cli: cli, scenario: "rate-limit-long", nonce: string(cli) + "-idle", retries: 3, flags: []string{"--idle-timeout", "10s"}})
	p.want(r, fleet.Failed, fleet.ClassRateLimited, "idle limit")
	if !strings.Contains(r.errs, "waiting on provider: rate limit") {
		p.T.Errorf("who followed the job was not told of the wait:\n%s", r.errs)
	}
}
