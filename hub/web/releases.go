package web

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/oklog/ulid/v2"

	"tugline.dev/tugline/hub/rollout"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// VersionIn is the path of a release; exported so that the library sees it.
type VersionIn struct {
	Version string `path:"version" doc:"such as 1.4.0"`
}

type releaseOut struct{ Body api.Release }

// releaseRoutes keep the releases that runners are given, and say who is given one.
func (s *Server) releaseRoutes() {
	huma.Register(s.api, op(http.MethodGet, "/v1/releases", "list-releases", "Versions that runners are given, newest first", fleet.RoleViewer), wrap(s, func(context.Context, *struct{}) (*struct{ Body api.Releases }, error) {
		v := s.cfg.Log.View()
		out := api.Releases{Releases: []api.Release{}, Key: fleet.ReleaseKeyOf(v.Meta().Settings)}
		for _, rel := range v.Releases() {
			out.Releases = append(out.Releases, showRelease(v, rel))
		}
		return &struct{ Body api.Releases }{out}, nil
	}))
	add := op(http.MethodPost, "/v1/releases", "add-release", "Offer a signed version to canaries, and then to others", fleet.RoleAdmin)
	add.DefaultStatus = http.StatusCreated
	huma.Register(s.api, add, wrap(s, func(ctx context.Context, in *struct{ Body api.AddRelease }) (*releaseOut, error) {
		b := in.Body
		for _, f := range b.Files {
			if _, err := s.cfg.Blobs.Renew(ctx, f.SHA256); err != nil {
				return nil, wrong(fleet.BlobMissing, "the program for %s/%s is not on the hub; upload it first", quote(f.OS), quote(f.Arch))
			}
		}
		if err := s.do(ctx, &state.AddRelease{Version: b.Version, Files: b.Files, Key: b.Key}); err != nil {
			return nil, err
		}
		return s.release(b.Version)
	}))
	huma.Register(s.api, op(http.MethodPost, "/v1/releases/{version}/offer", "offer-release", "Offer a release to a ring at once, and again where it failed or was halted", fleet.RoleAdmin), wrap(s, func(ctx context.Context, in *struct {
		VersionIn
		Body api.OfferRelease
	}) (*releaseOut, error) {
		if err := s.do(ctx, &state.MoveRelease{Version: in.Version, Ring: in.Body.Ring, Asked: asking()}); err != nil {
			return nil, err
		}
		return s.release(in.Version)
	}))
	remove := op(http.MethodDelete, "/v1/releases/{version}", "remove-release", "Forget a release; runners that run it go on with it", fleet.RoleAdmin)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, wrap(s, func(ctx context.Context, in *VersionIn) (*struct{}, error) {
		return &struct{}{}, s.do(ctx, &state.RemoveRelease{Version: in.Version})
	}))
	huma.Register(s.api, op(http.MethodPost, "/v1/runners/{id}/update", "update-runner", "Ask for a release on one runner, whatever its ring; its owner's rules still count", fleet.RoleAdmin), wrap(s, func(ctx context.Context, in *struct {
		RunnerIn
		Body *api.UpdateRunner `required:"false"`
	}) (*runnerOut, error) {
		b := api.UpdateRunner{}
		if in.Body != nil {
			b = *in.Body
		}
		return s.changeRunner(ctx, in.ID, func(r *fleet.Runner) (state.Command, error) {
			if b.Version == "" {
				newest, err := newestFor(s.cfg.Log.View(), r)
				if err != nil {
					return nil, err
				}
				b.Version = newest
			}
			return &state.WantRelease{Runner: r.ID, Version: b.Version, Asked: asking(), Downgrade: b.Downgrade}, nil
		})
	}))
	huma.Register(s.api, op(http.MethodPost, "/v1/runners/{id}/ring", "set-ring", "Set how early a runner is given new releases", fleet.RoleAdmin), wrap(s, func(ctx context.Context, in *struct {
		RunnerIn
		Body api.SetRing
	}) (*runnerOut, error) {
		return s.changeRunner(ctx, in.ID, func(r *fleet.Runner) (state.Command, error) { return &state.SetRing{ID: r.ID, Ring: in.Body.Ring}, nil })
	}))
}

// asking names what a person asks for, so that it is tried although it failed before.
func asking() string { return strings.ToLower(ulid.Make().String()) }

func newestFor(v state.View, r *fleet.Runner) (string, error) {
	for _, rel := range v.Releases() {
		if _, ok := rel.File(r.Facts.OS, r.Facts.Arch); ok {
			return rel.Version, nil
		}
	}
	return "", wrong(fleet.NotFound, "the hub has no release for %s/%s; add one with `tugline hub release add DIR`", r.Facts.OS, r.Facts.Arch)
}

func (s *Server) release(version string) (*releaseOut, error) {
	v := s.cfg.Log.View()
	rel, ok := v.Release(version)
	if !ok {
		return nil, wrong(fleet.NotFound, "release %s was removed again in the meantime", quote(version))
	}
	return &releaseOut{showRelease(v, rel)}, nil
}

func showRelease(v state.View, rel *fleet.Release) api.Release {
	runners := v.Runners()
	out := api.Release{
		Version: rel.Version, Files: rel.Files, AddedAt: rel.AddedAt.UTC(), AddedBy: rel.AddedBy, Ring: rel.Ring, Since: rel.Since.UTC(),
		Halted: rel.Halted, Waits: rollout.Waits(rel, runners), Runners: []api.ReleaseRunner{},
	}
	for _, r := range runners {
		if p, ok := rel.Runners[r.ID]; ok {
			p.Since = p.Since.UTC()
			out.Runners = append(out.Runners, api.ReleaseRunner{ID: r.ID, Name: r.Name, Progress: p})
		}
	}
	slices.SortFunc(out.Runners, func(a, b api.ReleaseRunner) int { return strings.Compare(a.Name, b.Name) })
	return out
}
