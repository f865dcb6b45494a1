package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/moby/moby/client"
)

// DockerLabel marks images that may be removed when the disk is full and the owner
// allows it: builds of jobs set it with --label.
const DockerLabel = "dev.tugline.job"

// Bounds of what the daemon is asked about its disk.
const (
	dockerDiskTime  = 10 * time.Second
	dockerPruneTime = 2 * time.Minute
)

// DockerUsage gives the bytes that images, containers, volumes and the build cache
// of the daemon take together. The error wraps ErrUnknown.
func (s *Sampler) DockerUsage(ctx context.Context) (int64, error) {
	bound, cancel := context.WithTimeout(ctx, dockerDiskTime)
	defer cancel()
	cli, err := s.answering(bound)
	if err != nil {
		return 0, err
	}
	return ask(bound, &s.looks, "docker disk", "", func(ctx context.Context) (int64, error) {
		defer cli.Close()
		if _, err := cli.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
			return 0, fmt.Errorf("disk usage of docker: %w: %w", ErrUnknown, err)
		}
		u, err := cli.DiskUsage(ctx, client.DiskUsageOptions{Containers: true, Images: true, BuildCache: true, Volumes: true})
		if err != nil {
			return 0, fmt.Errorf("disk usage of docker: %w: %w", ErrUnknown, err)
		}
		return u.Images.TotalSize + u.Containers.TotalSize + u.Volumes.TotalSize + u.BuildCache.TotalSize, nil
	})
}

// buildCacheKept is how much build cache stays, however old it is.
const buildCacheKept = 20_000_000_000

// Pruned is what was removed of Docker's.
type Pruned struct {
	Bytes  int64 `json:"bytes"` // of both; what images share counts with each
	Cache  int64 `json:"cache"`
	Images int   `json:"images"`
}

// DockerPrune removes build cache that was not used for so long, down to 20 GB, then dangling images that were made as long
// ago, carry DockerLabel and have no container; before each it asks whether it may go on. The daemon is the one of the
// settings, and no other that answers. It gives what was removed, also with an error.
func (s *Sampler) DockerPrune(ctx context.Context, older time.Duration, mayGoOn func() bool) (out Pruned, err error) {
	ctx, cancel := context.WithTimeout(ctx, dockerPruneTime)
	defer cancel()
	all, err := s.endpoints(ctx)
	if err != nil {
		return out, err
	}
	if len(all) == 0 {
		return out, fmt.Errorf("prune docker: there is no daemon: %w", ErrUnknown)
	}
	cli, err := all[0].open()
	if err != nil {
		return out, fmt.Errorf("prune docker: %w", err)
	}
	defer cli.Close()
	if _, err := cli.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return out, fmt.Errorf("prune docker: %w", err)
	}
	if !mayGoOn() {
		return out, nil
	}
	cache, err := cli.BuildCachePrune(ctx, client.BuildCachePruneOptions{ReservedSpace: buildCacheKept, Filters: make(client.Filters).Add("until", older.String())})
	if err != nil {
		err = fmt.Errorf("prune build cache of docker: %w", err)
	}
	out.Cache = int64(cache.Report.SpaceReclaimed)
	out.Bytes = out.Cache
	images, listErr := cli.ImageList(ctx, client.ImageListOptions{Filters: make(client.Filters).Add("dangling", "true").Add("label", DockerLabel)})
	if listErr != nil {
		return out, errors.Join(err, fmt.Errorf("list images of docker: %w", listErr))
	}
	containers, listErr := cli.ContainerList(ctx, client.ContainerListOptions{All: true})
	if listErr != nil {
		return out, errors.Join(err, fmt.Errorf("list containers of docker: %w", listErr))
	}
	used := map[string]bool{}
	for _, c := range containers.Items {
		used[c.ImageID] = true
	}
	for _, image := range images.Items {
		_, labelled := image.Labels[DockerLabel]
		named := slices.ContainsFunc(image.RepoTags, func(tag string) bool { return tag != "<none>:<none>" })
		if named || !labelled || used[image.ID] || image.Created <= 0 || time.Since(time.Unix(image.Created, 0)) < older {
			continue
		}
		if !mayGoOn() {
			break
		}
		// The daemon's own pruning would take images along on which this one builds, with or without the label.
		if _, failed := cli.ImageRemove(ctx, image.ID, client.ImageRemoveOptions{}); failed != nil {
			err = errors.Join(err, fmt.Errorf("remove image %s of docker: %w", image.ID, failed))
			continue
		}
		out.Images++
		out.Bytes += image.Size
	}
	return out, err
}
