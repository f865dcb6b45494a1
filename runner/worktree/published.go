package worktree

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// A span is what a bundle holds: a commit with all that it builds on, without what the base has.
type span struct {
	Base string `json:"base,omitempty"`
	Tip  string `json:"tip"`
}

// known is what of a repository is known to be elsewhere. It comes from the records, where no agent writes, and from refs:
// of those of a remote the remote is asked anew before the last copy of anything goes.
type known struct {
	git     git
	dir     string
	refs    []string // arguments of git that name refs whose commits count
	commits []string // with all that they build on; each is there
}

// elsewhere gathers from records what came from the remote or from who asked for a job, what was pushed, and what the
// hub has acknowledged. A bundle at the hub counts only where what it builds on is elsewhere too: that may be another
// job's. whole says that nothing was left out for that reason.
func elsewhere(ctx context.Context, g git, dir string, recs []*record, refs ...string) (k known, whole bool, err error) {
	k = known{git: g, dir: dir, refs: refs}
	var names []string
	var waiting []span
	for _, rec := range recs {
		names = append(append(names, rec.Given...), rec.Published...)
		waiting = append(waiting, rec.Delivered...)
	}
	if err = k.add(ctx, names...); err != nil {
		return k, false, err
	}
	for n := -1; n != len(waiting) && len(waiting) > 0; {
		n = len(waiting)
		rest := waiting[:0]
		for _, d := range waiting {
			has, err := k.has(ctx, d.Base)
			if err == nil && has {
				err = k.add(ctx, d.Tip)
			} else {
				rest = append(rest, d)
			}
			if err != nil {
				return k, false, err
			}
		}
		waiting = rest
	}
	return k, len(waiting) == 0, nil
}

// add adds commits, with all that they build on; one that is not here has nothing to tell.
func (k *known) add(ctx context.Context, shas ...string) error {
	var names []string
	for _, sha := range shas {
		if isSHA(sha) && !slices.Contains(k.commits, sha) {
			names = append(names, sha+"^{commit}")
		}
	}
	if len(names) == 0 {
		return nil
	}
	found, err := k.git.lookUp(ctx, k.dir, names...)
	for _, sha := range found {
		if sha != "" && !slices.Contains(k.commits, sha) {
			k.commits = append(k.commits, sha)
		}
	}
	return err
}

// has says whether a commit with all that it builds on is elsewhere; "" is none, and is.
func (k known) has(ctx context.Context, sha string) (bool, error) {
	if sha == "" || slices.Contains(k.commits, sha) {
		return true, nil
	}
	found, err := k.git.lookUp(ctx, k.dir, sha+"^{commit}")
	if err != nil || found[0] == "" {
		return false, err
	}
	out, err := k.beyond(ctx, []string{sha}, "--count")
	return strings.TrimSpace(out) == "0", err
}

// beyond lists what commits have that is not known to be elsewhere, with more arguments of git's rev-list.
func (k known) beyond(ctx context.Context, shas []string, more ...string) (string, error) {
	var in strings.Builder
	for _, sha := range shas {
		in.WriteString(sha + "\n")
	}
	for _, sha := range k.commits {
		in.WriteString("^" + sha + "\n")
	}
	args := append(append([]string{"rev-list", "--stdin"}, more...), "--not")
	return k.git.run(ctx, call{dir: k.dir, stdin: strings.NewReader(in.String()), args: append(args, k.refs...)})
}

// count counts what tips have that is not known to be elsewhere.
func (k known) count(ctx context.Context, tips ...tip) (n int, err error) {
	shas := make([]string, len(tips))
	for i, t := range tips {
		shas[i] = t.sha
	}
	out, err := k.beyond(ctx, shas, "--count")
	if err == nil {
		n, err = strconv.Atoi(strings.TrimSpace(out))
	}
	return n, err
}

// remoteRefs names the refs of the remote as they were at its last fetch.
const remoteRefs = "--glob=refs/remotes/origin"

// published gives what of a workspace's cache is known to be elsewhere. Where its own record does not tell of all that
// the job began with, those of the other jobs do.
func (s *Store) published(ctx context.Context, w workspace, rec *record) (known, error) {
	k, whole, err := elsewhere(ctx, w.git, w.top, []*record{rec}, remoteRefs)
	if err == nil && whole {
		whole, err = k.has(ctx, rec.Base)
	}
	if err != nil || whole {
		return k, err
	}
	all, _, err := s.allRecords()
	if err != nil {
		return k, err
	}
	all = slices.DeleteFunc(all, func(r *record) bool { return r.Cache != rec.Cache || r.Generation != rec.Generation })
	k, _, err = elsewhere(ctx, w.git, w.top, all, remoteRefs)
	return k, err
}
