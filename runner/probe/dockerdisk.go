package probe

import (
	"context"
	"errors"
	"fmt"
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

// DockerPrune removes build cache that was not used for so long, then dangling images
// that are as old and carry DockerLabel; in between it asks whether it may go on. It
// gives the bytes that came free, also with an error.
func (s *Sampler) DockerPrune(ctx context.Context, older time.Duration, mayGoOn func() bool) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, dockerPruneTime)
	defer cancel()
	cli, err := s.answering(ctx)
	if err != nil {
		return 0, err
	}
	defer cli.Close()
	if _, err := cli.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return 0, fmt.Errorf("prune docker: %w", err)
	}
	until := older.String()
	cache, cacheErr := cli.BuildCachePrune(ctx, client.BuildCachePruneOptions{Filters: make(client.Filters).Add("until", until)})
	freed := int64(cache.Report.SpaceReclaimed)
	if cacheErr != nil {
		cacheErr = fmt.Errorf("prune build cache of docker: %w", cacheErr)
	}
	if !mayGoOn() {
		return freed, cacheErr
	}
	images, err := cli.ImagePrune(ctx, client.ImagePruneOptions{Filters: make(client.Filters).Add("dangling", "true").Add("until", until).Add("label", DockerLabel)})
	if err != nil {
		err = fmt.Errorf("prune images of docker: %w", err)
	}
	return freed + int64(images.Report.SpaceReclaimed), errors.Join(cacheErr, err)
}
