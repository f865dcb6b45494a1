package runner

import (
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

const childVar = "TUGLINE_TEST_RUNNER_CHILD"

func childRunner() int { return 1 }

// An exec job's whole way: order, fence, accept, process, output, result, seal, forget.
func TestExecJobFromOrderToForget(t *testing.T) {
	h := newHub(t)
	r := h.newRunner()
	j, f := h.run(r.id, "/bin/sh", "-c", "echo hello; echo oops >&2; echo $TUGLINE_JOB_ID")
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	if got, want := h.text(j, f, fleet.FrameStdout), "hello\n"+string(j)+"\n"; got != want {
		t.Errorf("standard output %q, want %q", got, want)
	}
	if got := h.text(j, f, fleet.FrameStderr); got != "oops\n" {
		t.Errorf("standard error %q", got)
	}
	a := h.attempt(j, f)
	if a.StartedAt == nil || a.Exit == nil || a.Exit.Reason != "exited" || a.Permissions != fleet.PermWorkspace {
		t.Errorf("attempt %+v", a)
	}
	eventually(t, "the runner to forget the attempt", func() bool { _, ok := r.journal.Attempt(f); return !ok })
	if items := r.journal.Pending(0, 10); len(items) != 0 {
		t.Errorf("the outbox still has %+v", items)
	}
}
