package state

import (
	"maps"
	"slices"

	"tugline.dev/tugline/shared/fleet"
)

const tableReleases = "releases"

var (
	_ = register(func() Command { return new(AddRelease) })
	_ = register(func() Command { return new(RemoveRelease) })
	_ = register(func() Command { return new(SetRing) })
	_ = register(func() Command { return new(WantRelease) })
	_ = register(func() Command { return new(RecordProgress) })
	_ = register(func() Command { return new(MoveRelease) })
)

// releasesGeneration is that of releases, and of what runners say of their updates.
const releasesGeneration = 6

// AddRelease records the signed programs of one version. It begins with the canaries.
// Key is what they are signed by; the first release sets it for the cluster.
type AddRelease struct {
	Version string              `json:"version"`
	Files   []fleet.ReleaseFile `json:"files"`
	Key     string              `json:"key"`
}

func (*AddRelease) kind() Kind { return 59 }

func (c *AddRelease) apply(t *txn) Result {
	if bad := c.check(); bad.Code != "" {
		return bad
	}
	pinned := fleet.ReleaseKeyOf(t.meta.Settings)
	if pinned != "" && pinned != c.Key {
		return refuse(fleet.Conflict, "releases of this cluster are signed by %s, and this one by %s", pinned, c.Key)
	}
	if was := t.published(c.Version); was != nil {
		if slices.Equal(was.Files, c.Files) {
			return Result{ID: c.Version, Repeated: true}
		}
		return refuse(fleet.Conflict, "there is a release %s with other files; a changed program needs a version of its own", c.Version)
	}
	n := 0
	each(t.Txn, tableReleases, "id", func(*fleet.Release) bool { n++; return true })
	if n >= fleet.MaxReleases {
		return refuse(fleet.TooLarge, "there are %d releases, the bound; remove an old one with `tugline hub release remove`", n)
	}
	if pinned == "" {
		t.meta.Settings = maps.Clone(t.meta.Settings)
		if t.meta.Settings == nil {
			t.meta.Settings = map[string]string{}
		}
		t.meta.Settings[fleet.SettingReleaseKey] = c.Key
		t.changed(Change{What: "setting"})
	}
	t.putRelease(&fleet.Release{Version: c.Version, Files: c.Files, AddedAt: t.now(), AddedBy: t.head.Actor, Ring: fleet.RingCanary, Since: t.now()})
	return Result{ID: c.Version}
}

func (c *AddRelease) check() Result {
	switch {
	case !fleet.IsVersion(c.Version):
		return refuse(fleet.BadRequest, "%q names no version such as 1.4.0", fleet.CutText(c.Version, 80))
	case !fleet.IsReleaseKey(c.Key):
		return refuse(fleet.BadRequest, "%q is no minisign public key", fleet.CutText(c.Key, 80))
	case len(c.Files) == 0 || len(c.Files) > fleet.MaxReleaseFiles:
		return refuse(fleet.BadRequest, "a release has 1 to %d files, not %d", fleet.MaxReleaseFiles, len(c.Files))
	}
	for i, f := range c.Files {
		switch {
		case f.OS == "" || f.Arch == "" || len(f.OS) > 32 || len(f.Arch) > 32:
			return refuse(fleet.BadRequest, "a file of a release names its system and its processor")
		case !f.SHA256.Valid() || f.Size <= 0 || f.Size > fleet.MaxProgram:
			return refuse(fleet.BadRequest, "the program for %s/%s has no digest, or not 1 to %d bytes", f.OS, f.Arch, fleet.MaxProgram)
		case f.Signature == "" || len(f.Signature) > fleet.MaxSignature:
			return refuse(fleet.BadRequest, "the program for %s/%s has no signature of up to %d bytes", f.OS, f.Arch, fleet.MaxSignature)
		}
		for _, o := range c.Files[:i] {
			if o.OS == f.OS && o.Arch == f.Arch {
				return refuse(fleet.BadRequest, "there are two programs for %s/%s", f.OS, f.Arch)
			}
		}
	}
	return Result{}
}

// RemoveRelease forgets a version. Runners that run it go on with it.
type RemoveRelease struct {
	Version string `json:"version"`
}

func (*RemoveRelease) kind() Kind { return 60 }

func (c *RemoveRelease) apply(t *txn) Result {
	rel, bad := t.editRelease(c.Version)
	if rel == nil {
		return bad
	}
	t.delete(tableReleases, rel)
	t.changed(Change{What: "release", Removed: true})
	return Result{ID: c.Version}
}

// SetRing says how early a runner is given new releases.
type SetRing struct {
	ID   fleet.RunnerID `json:"id"`
	Ring fleet.Ring     `json:"ring"`
}

func (*SetRing) kind() Kind { return 61 }

func (c *SetRing) apply(t *txn) Result {
	r, bad := t.editRunner(c.ID)
	switch {
	case r == nil:
		return bad
	case c.Ring.Rank() < 0:
		return refuse(fleet.BadRequest, "%q is none of the rings canary, early and all", fleet.CutText(string(c.Ring), 80))
	case r.InRing() == c.Ring:
		return Result{ID: string(r.ID), Repeated: true}
	}
	r.Ring = c.Ring
	t.putRunner(r)
	return Result{ID: string(r.ID)}
}

// WantRelease records that a person asks for a version on one runner, whatever its ring;
// without a version it is given what its ring is given again.
type WantRelease struct {
	Runner    fleet.RunnerID `json:"runner"`
	Version   string         `json:"version,omitempty"`
	Asked     string         `json:"asked,omitempty"`
	Downgrade bool           `json:"downgrade,omitempty"`
}

func (*WantRelease) kind() Kind { return 62 }

func (c *WantRelease) apply(t *txn) Result {
	r, bad := t.editRunner(c.Runner)
	if r == nil {
		return bad
	}
	if c.Version == "" {
		if r.Wanted == nil {
			return Result{ID: string(r.ID), Repeated: true}
		}
		r.Wanted = nil
		t.putRunner(r)
		return Result{ID: string(r.ID)}
	}
	rel, bad := t.editRelease(c.Version)
	if rel == nil {
		return bad
	}
	if c.Asked == "" || len(c.Asked) > 64 {
		return refuse(fleet.BadRequest, "an asking has a name of up to 64 bytes")
	}
	if _, ok := rel.File(r.Facts.OS, r.Facts.Arch); !ok {
		return refuse(fleet.Conflict, "release %s has no program for %s/%s, which %s is", c.Version, r.Facts.OS, r.Facts.Arch, r.Name)
	}
	order, ok := fleet.CompareVersions(c.Version, r.Facts.Version)
	switch {
	case !ok:
		return refuse(fleet.Conflict, "runner %s runs %s, which is no release: nothing is newer or older than that", r.Name, fleet.CutText(r.Facts.Version, 80))
	case order == 0:
		return refuse(fleet.Conflict, "runner %s runs %s already", r.Name, r.Facts.Version)
	case order < 0 && !c.Downgrade:
		return refuse(fleet.Conflict, "%s is older than %s, which runner %s runs; ask for a downgrade (--downgrade)", c.Version, r.Facts.Version, r.Name)
	}
	r.Wanted = &fleet.Wanted{Version: c.Version, Asked: c.Asked, Downgrade: c.Downgrade && order < 0, By: t.head.Actor, At: t.now()}
	t.putRunner(r)
	return Result{ID: string(r.ID)}
}

// RecordProgress records how a release goes on runners. What was recorded of one stays:
// only more is added.
type RecordProgress struct {
	Version string                            `json:"version"`
	Runners map[fleet.RunnerID]fleet.Progress `json:"runners"` // Since is not looked at
}

func (*RecordProgress) kind() Kind { return 63 }

func (c *RecordProgress) apply(t *txn) Result {
	rel, bad := t.editRelease(c.Version)
	if rel == nil {
		return bad
	}
	if len(c.Runners) > maxReports {
		return refuse(fleet.TooLarge, "progress of %d runners in one entry, at most %d", len(c.Runners), maxReports)
	}
	all := maps.Clone(rel.Runners)
	if all == nil {
		all = map[fleet.RunnerID]fleet.Progress{}
	}
	news := false
	for id, p := range c.Runners {
		was, known := all[id]
		is := was
		if !known {
			is.Since = t.now()
		}
		is.Healthy = was.Healthy || p.Healthy
		is.Job = orElseJob(was.Job, p.Job)
		is.Failed = orElse(was.Failed, fleet.CutText(p.Failed, fleet.MaxDetail))
		if !known || is != was {
			all[id], news = is, true
		}
	}
	if !news {
		return Result{ID: c.Version, Repeated: true}
	}
	rel.Runners = all
	t.putRelease(rel)
	return Result{ID: c.Version}
}

func orElseJob(a, b fleet.JobID) fleet.JobID {
	if a == "" {
		return b
	}
	return a
}

// MoveRelease has a release go to a ring, or halts it where it is. What a person says by
// it, with an asking of theirs, begins anew on runners where it failed before.
type MoveRelease struct {
	Version string     `json:"version"`
	From    fleet.Ring `json:"from,omitempty"` // it is assumed to be at; empty: wherever
	Ring    fleet.Ring `json:"ring,omitempty"`
	Halt    string     `json:"halt,omitempty"` // why, instead of a ring
	Asked   string     `json:"asked,omitempty"`
}

func (*MoveRelease) kind() Kind { return 64 }

func (c *MoveRelease) apply(t *txn) Result {
	rel, bad := t.editRelease(c.Version)
	switch {
	case rel == nil:
		return bad
	case c.From != "" && c.From != rel.Ring:
		return refuse(fleet.Conflict, "release %s is at %s, not at %s", rel.Version, rel.Ring, c.From)
	case (c.Halt == "") == (c.Ring == ""):
		return refuse(fleet.BadRequest, "a release goes to a ring or is halted")
	case len(c.Asked) > 64:
		return refuse(fleet.BadRequest, "an asking has a name of up to 64 bytes")
	}
	if c.Halt != "" {
		if rel.Halted != "" {
			return Result{ID: rel.Version, Repeated: true}
		}
		rel.Halted = fleet.CutText(c.Halt, fleet.MaxDetail)
		t.putRelease(rel)
		t.alert(&fleet.Alert{ID: t.alertID(1), At: t.now(), Kind: AlertRelease, Text: "release " + rel.Version + " is halted at " + string(rel.Ring) + ": " + rel.Halted})
		return Result{ID: rel.Version}
	}
	if c.Ring.Rank() < 0 {
		return refuse(fleet.BadRequest, "%q is none of the rings canary, early and all", fleet.CutText(string(c.Ring), 80))
	}
	if c.Asked == "" && rel.Halted != "" {
		return refuse(fleet.Conflict, "release %s is halted: %s", rel.Version, rel.Halted)
	}
	rel.Ring, rel.Since = c.Ring, t.now()
	if c.Asked != "" {
		rel.Halted, rel.Asked, rel.Runners = "", c.Asked, maps.Clone(rel.Runners)
		maps.DeleteFunc(rel.Runners, func(_ fleet.RunnerID, p fleet.Progress) bool { return p.Failed != "" })
	}
	t.putRelease(rel)
	return Result{ID: rel.Version}
}

func (t *txn) published(version string) *fleet.Release {
	return first[fleet.Release](t.Txn, tableReleases, "id", version)
}

// editRelease gives a copy of a release that the command may change and must put.
func (t *txn) editRelease(version string) (*fleet.Release, Result) {
	rel := t.published(version)
	if rel == nil {
		return nil, refuse(fleet.NotFound, "there is no release %s; `tugline hub release list` shows them", fleet.CutText(version, 80))
	}
	n := *rel
	return &n, Result{}
}

func (t *txn) putRelease(rel *fleet.Release) {
	t.insert(tableReleases, rel)
	t.changed(Change{What: "release"})
}

// Releases gives the releases, the newest first.
func (v View) Releases() []*fleet.Release {
	var out []*fleet.Release
	each(v.tx, tableReleases, "id", func(r *fleet.Release) bool { out = append(out, r); return true })
	slices.SortFunc(out, func(a, b *fleet.Release) int {
		order, _ := fleet.CompareVersions(b.Version, a.Version)
		return order
	})
	return out
}

// Release gives one release.
func (v View) Release(version string) (*fleet.Release, bool) {
	r := first[fleet.Release](v.tx, tableReleases, "id", version)
	return r, r != nil
}
