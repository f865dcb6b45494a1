package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// lockPatience bounds how long a repository that is in use holds up the others.
const lockPatience = 5 * time.Second

// A Policy says what may go.
type Policy struct {
	Keeps
	// Busy says whether a job has an attempt here, or one that is not settled yet.
	Busy func(fleet.JobID) bool
	// Enough says that the disk has room again, so that no more caches have to go; nil is never.
	Enough func() bool
}

// A Workspace is a job's worktree, with what is known of it and what becomes of it.
type Workspace struct {
	Job    fleet.JobID
	Path   string
	URL    string // of its repository, without credentials; "" without one
	Branch string
	Evidence
	Decision
	// Commands save, each for itself, what is here alone.
	Commands []string
}

// Retained is what one pass has done.
type Retained struct {
	Deleted []Workspace
	Saved   []Workspace
	Kept    []Workspace // all others
	Evicted []Cache
	Packed  int // caches that were packed anew
	Bytes   int64
	Caches  []Cache // that stay
}

// Workspaces looks at every workspace, and changes nothing. One that is in use is not looked into.
func (s *Store) Workspaces(ctx context.Context, p Policy) ([]Workspace, error) {
	recs, all, err := s.listed()
	if err != nil {
		return nil, err
	}
	for _, rec := range recs {
		w, err := s.view(ctx, rec, p)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b Workspace) int { return strings.Compare(string(a.Job), string(b.Job)) })
	return all, nil
}

func (s *Store) view(ctx context.Context, rec *record, p Policy) (Workspace, error) {
	e := seen{Evidence: Evidence{Busy: p.Busy(rec.Job), LastUse: s.lastUse(rec)}}
	if !e.Busy {
		var err error
		if e, err = s.examine(ctx, rec); err != nil {
			return Workspace{}, fmt.Errorf("look at the workspace of job %s: %w", rec.Job, err)
		}
	}
	return s.shown(rec, e, p), nil
}

func (s *Store) shown(rec *record, e seen, p Policy) Workspace {
	w := Workspace{Job: rec.Job, Path: rec.Path, URL: Redact(rec.URL), Branch: rec.Branch, Evidence: e.Evidence}
	w.Decision = Decide(w.Evidence, p.Keeps, s.now())
	w.Commands = commands(rec, e)
	return w
}

// listed gives the records of all workspaces that are there, and what is in their place without a usable record.
func (s *Store) listed() (recs []*record, strange []Workspace, err error) {
	files, err := os.ReadDir(filepath.Join(s.dir, "jobs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	known := map[fleet.JobID]bool{}
	look := func(job fleet.JobID, path, why string) {
		strange = append(strange, Workspace{Job: job, Path: path, Evidence: Evidence{Unclear: why}, Decision: Decision{Do: Look, Why: why}, Commands: []string{copyCommand(path, string(job))}})
	}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".json")
		job := fleet.JobID(name)
		if !ok || checkJob(job) != nil {
			continue
		}
		rec, err := s.load(job)
		path := filepath.Join(s.dir, "work", name)
		switch {
		case err != nil && exists(path):
			look(job, path, "its record can't be read: "+oneLine(err))
		case err != nil || rec == nil || rec.State == stateRemoved && !exists(rec.Path):
		case rec.State == stateRemoved:
			look(job, rec.Path, "it is there although it was removed")
		case rec.Job != job:
			look(job, path, "its record is that of another job")
		default:
			recs = append(recs, rec)
		}
		known[job] = true
	}
	dirs, err := os.ReadDir(filepath.Join(s.dir, "work"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, d := range dirs {
		if job := fleet.JobID(d.Name()); !known[job] {
			look(job, filepath.Join(s.dir, "work", d.Name()), "it was not made by this runner")
		}
	}
	return recs, strange, nil
}

// Retain goes through all workspaces and then all caches, and does with each what Decide and DecideCache say. A workspace
// goes only when two looks at it, the second one at a place where nobody finds it, have shown the same proof. What fails
// is told and does not hold up the rest, nor does a repository that is in use.
func (s *Store) Retain(ctx context.Context, p Policy) (Retained, error) {
	var out Retained
	recs, strange, err := s.listed()
	if err != nil {
		return out, err
	}
	out.Kept = strange
	var failed []error
	for _, rec := range recs {
		w, done, err := s.retain(ctx, rec, p, &out)
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("retain the workspace of job %s: %w", rec.Job, err))
			w.Decision = Decision{Do: Look, Why: "it could not be dealt with: " + oneLine(err)}
		}
		switch {
		case err != nil || !done:
			out.Kept = append(out.Kept, w)
		case w.Do == Delete:
			out.Deleted = append(out.Deleted, w)
		}
	}
	if err := s.retainCaches(ctx, p, &out); err != nil {
		failed = append(failed, err)
	}
	return out, errors.Join(failed...)
}

// retain deals with one workspace; done says that it has gone.
func (s *Store) retain(ctx context.Context, rec *record, p Policy, out *Retained) (w Workspace, done bool, err error) {
	s.leaving.Lock()
	err = comeBack(rec)
	s.leaving.Unlock()
	// What is in use or young is not looked into.
	brief := seen{Evidence: Evidence{Busy: p.Busy(rec.Job), Gone: !exists(rec.Path), LastUse: s.lastUse(rec)}}
	w = s.shown(rec, brief, p)
	if err != nil || w.Do == Keep {
		return w, false, err
	}
	hold, err := s.briefly(ctx, rec.Cache)
	if err != nil {
		return w, false, err
	}
	if hold == nil {
		w.Decision = Decision{Do: Keep, Why: "its repository is in use"}
		return w, false, nil
	}
	defer hold.release()
	if rec, err = s.load(rec.Job); err != nil || rec == nil || rec.State == stateRemoved {
		return w, true, err
	}
	e, err := s.examine(ctx, rec)
	if err != nil {
		return w, false, err
	}
	if w = s.shown(rec, e, p); w.Do == Save {
		if err := s.saveFiles(ctx, rec); err != nil {
			return w, false, err
		}
		if e, err = s.examine(ctx, rec); err != nil {
			return w, false, err
		}
		if w = s.shown(rec, e, p); w.Do == Save {
			w.Decision = Decision{Do: Look, Why: "its files change while they are saved"}
		}
		out.Saved = append(out.Saved, w)
	}
	if w.Do != Delete {
		return w, false, nil
	}
	gone, bytes, err := s.depart(ctx, rec, e, p)
	out.Bytes += bytes
	if err == nil && !gone {
		w.Decision = Decision{Do: Keep, Why: "it was used while it was looked at"}
	}
	return w, gone, err
}

// briefly takes the lock of a repository; nil is that it is in use.
func (s *Store) briefly(ctx context.Context, id string) (*hold, error) {
	short, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	h, err := s.lock(short, id)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		return nil, nil
	}
	return h, err
}

// depart removes a workspace that may go, unless a job has taken it up, or somebody has changed it, since it was looked
// at. The caller holds the lock of the cache.
func (s *Store) depart(ctx context.Context, rec *record, was seen, p Policy) (gone bool, bytes int64, err error) {
	looks := !was.Gone && !was.Half
	// The git directory of a submodule knows its place by name and can't be looked at elsewhere.
	inPlace := looks && exists(filepath.Join(rec.Admin, "modules"))
	if inPlace {
		if now, err := s.examine(ctx, rec); err != nil || !now.same(was) {
			return false, 0, err
		}
	}
	going := rec.Path + goingSuffix
	s.leaving.Lock()
	cur, err := s.load(rec.Job)
	if err == nil && (cur == nil || !cur.At.Equal(rec.At) || p.Busy(rec.Job)) {
		s.leaving.Unlock()
		return false, 0, nil
	}
	if err == nil && !was.Gone {
		err = os.Rename(rec.Path, going)
	}
	s.leaving.Unlock()
	if err != nil {
		return false, 0, err
	}
	if looks && !inPlace {
		moved := *rec
		moved.Path = going
		now, err := s.examine(ctx, &moved)
		if err != nil || !now.same(was) {
			s.leaving.Lock()
			defer s.leaving.Unlock()
			return false, 0, errors.Join(err, comeBack(rec))
		}
	}
	var back error
	gone, bytes, err = s.remove(ctx, rec, going, func() bool {
		if !p.Busy(rec.Job) && exists(going) != was.Gone && !exists(rec.Path) {
			return true
		}
		back = comeBack(rec) // a job has begun meanwhile, and may have it back already
		return false
	})
	if err = errors.Join(err, back); err != nil || !gone {
		return false, 0, err
	}
	// The refs hold the same.
	return true, bytes, removeAll(filepath.Join(s.dir, "out", string(rec.Job)))
}

// Unfinished deletes the workspace of a job that was being made when the runner ended. Nothing else is touched; true
// says that there was one.
func (s *Store) Unfinished(ctx context.Context, job fleet.JobID) (bool, error) {
	rec, err := s.load(job)
	if err != nil || rec == nil || rec.State != statePreparing || !exists(rec.Path) {
		return false, err
	}
	h, err := s.lock(ctx, rec.Cache)
	if err != nil {
		return false, err
	}
	defer h.release()
	if rec, err = s.load(job); err != nil || rec == nil || rec.State != statePreparing {
		return false, err
	}
	gone, _, err := s.remove(ctx, rec, rec.Path, nil)
	return gone, err
}

// commands gives what a person runs to have elsewhere what is here alone.
func commands(rec *record, e seen) []string {
	if e.Gone || e.Half || e.Busy {
		return nil
	}
	to, before := "origin", ""
	if rec.URL == "" { // it came without a remote: a repository beside
		to = `"$HOME"/` + string(rec.Job) + ".git"
		before = "git init -q --bare " + to + " && "
	}
	var specs, all []string
	for _, t := range e.own {
		specs = append(specs, quote(t.sha+":refs/heads/"+t.name))
	}
	if e.Rescue != "" {
		specs = append(specs, quote(e.Rescue+":refs/heads/"+rec.Branch+"-rescue"))
	}
	if len(specs) > 0 {
		all = append(all, before+"git -C "+quote(rec.Path)+" push "+to+" "+strings.Join(specs, " "))
	}
	if e.Unclear != "" || e.Inner != "" || e.Unsaved > 0 || e.Dirty && e.Rescue == "" {
		all = append(all, copyCommand(rec.Path, string(rec.Job)))
	}
	return all
}

func copyCommand(path, name string) string {
	return "cp -a " + quote(path) + ` "$HOME"/` + quote(name)
}

// quote makes one word of a shell.
func quote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-:@%+=", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
