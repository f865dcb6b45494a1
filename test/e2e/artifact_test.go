package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// Files that a run leaves in its artifacts directory are listed and given by name.
func TestArtifactsOfARun(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	id := m.Detach("exec", "--", "sh", "-c", `mkdir "$TUGLINE_ARTIFACTS/my report"; echo fine > "$TUGLINE_ARTIFACTS/my report/üb.txt"; echo own > "$TUGLINE_ARTIFACTS/patch"`)
	if j := m.Ended(id, 20*time.Second); j.State != fleet.Succeeded {
		t.Fatalf("job is %s: %+v", j.State, j.Reason)
	}
	m.Eventually(10*time.Second, "the log is sealed", func() bool { return m.Job(id).Log.Sealed })
	list := m.Run("job", "artifacts", id)
	if !strings.Contains(list, "my_report/üb.txt") || !strings.Contains(list, "artifacts/patch") {
		t.Errorf("listed:\n%s", list)
	}
	if got := m.Run("job", "artifacts", id, "my_report/üb.txt"); got != "fine\n" {
		t.Errorf("the report is %q", got)
	}
	out := filepath.Join(m.Dir, "own")
	m.Run("job", "artifacts", id, "artifacts/patch", "-o", out)
	if b, err := os.ReadFile(out); err != nil || string(b) != "own\n" {
		t.Errorf("the run's own file is %q, %v", b, err)
	}
}
