package attempt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// sessionDir gives the directory of the session that a job goes on with. People work
// there: nothing is made or removed in it by the runner, and the owner says where
// that may be.
func (a *Attempt) sessionDir(ctx context.Context) (dir, note string, err error) {
	id := a.asg.Spec.Session.ID
	a.tell("looking for the session")
	s, err := a.host.Session(ctx, a.asg.Spec.Harness, id)
	if errors.Is(err, fleet.NotFound) {
		return "", "", blocked(fleet.SessionGone, "there is no session %s of %s on this runner; `tugline session list` shows those that there are", id, a.asg.Spec.Harness)
	}
	if err != nil {
		return "", "", fmt.Errorf("look for session %s: %w: %w", id, fleet.Unavailable, err)
	}
	// What is allowed is the directory itself, and not where a link to it stands.
	dir, err = filepath.EvalSymlinks(s.Dir)
	if st, err2 := os.Stat(dir); err != nil || err2 != nil || !st.IsDir() {
		return "", "", blocked(fleet.SessionGone, "the directory %s of session %s is gone from this runner", s.Dir, id)
	}
	if !a.host.Policy().worksIn(dir) {
		return "", "", blocked(fleet.OwnerPolicy, "the owner of this runner lets no job go on with a session in %s; to allow it, name it, or one above it, under session_dirs in runner.yaml and retry the job", dir)
	}
	return dir, "goes on with the session " + id + " in " + dir + ", without a worktree: what it changes there is changed at once", nil
}

// worksIn says whether jobs may work in a directory that people work in.
func (p Policy) worksIn(dir string) bool {
	return slices.ContainsFunc(p.SessionDirs, func(allowed string) bool {
		if real, err := filepath.EvalSymlinks(allowed); err == nil {
			allowed = real
		}
		rel, err := filepath.Rel(allowed, dir)
		return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
	})
}

// sessionEnv gives the variables by which the CLI of a job finds such a session.
func (p Policy) sessionEnv(spec fleet.Spec) []string {
	if spec.Session == nil {
		return nil
	}
	return p.SessionEnv[spec.Harness]
}
