//go:build installers && linux

package installers

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/runner/probe"
)

// image makes an archive for docker load of an image without layers of use, made at a time and without a name.
func image(t *testing.T, name string, made time.Time, labels map[string]string) (archive []byte, id string) {
	t.Helper()
	pack := func(files map[string][]byte) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, f := range []string{"name", "layer.tar", "config.json", "manifest.json"} {
			if text, ok := files[f]; ok {
				if err := w.WriteHeader(&tar.Header{Name: f, Mode: 0o644, Size: int64(len(text))}); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write(text); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	sum := func(b []byte) string { s := sha256.Sum256(b); return "sha256:" + hex.EncodeToString(s[:]) }
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	layer := pack(map[string][]byte{"name": []byte(name)})
	config := encode(map[string]any{
		"architecture": "amd64", "os": "linux", "created": made.UTC().Format(time.RFC3339),
		"config": map[string]any{"Labels": labels, "Cmd": []string{"/name"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{sum(layer)}},
	})
	manifest := encode([]any{map[string]any{"Config": "config.json", "Layers": []string{"layer.tar"}}})
	return pack(map[string][]byte{"layer.tar": layer, "config.json": config, "manifest.json": manifest}), sum(config)
}

// Of a real daemon goes what may go, and nothing else: a dangling image that is old, labelled and nobody's.
func TestDockerIsRelieved(t *testing.T) {
	t.Parallel() // it waits most of the time, as do the others
	d := startDocker(t)
	old, young := time.Now().Add(-8*24*time.Hour), time.Now().Add(-6*24*time.Hour)
	label := map[string]string{probe.DockerLabel: "job"}
	ids := map[string]string{}
	for _, i := range []struct {
		name   string
		made   time.Time
		labels map[string]string
	}{
		{"goes", old, label}, {"young", young, label}, {"plain", old, nil}, {"other label", old, map[string]string{"dev.example": "job"}},
		{"named", old, label}, {"used", old, label}, {"of a container", old, nil},
	} {
		archive, id := image(t, i.name, i.made, i.labels)
		path := filepath.Join(d.dir, "image.tar")
		write(t, path, string(archive), 0o600)
		d.docker("load", "-i", path)
		ids[i.name] = id
	}
	d.docker("tag", ids["named"], "named:latest")
	d.docker("create", "--name", "one", "--network", "none", ids["used"])
	d.docker("create", "--name", "two", "--network", "none", "-v", "data:/data", ids["of a container"])
	d.docker("volume", "create", "alone")
	listed := func() (all []string) {
		for _, what := range [][]string{{"images", "-a", "-q", "--no-trunc"}, {"ps", "-a", "-q", "--no-trunc"}, {"volume", "ls", "-q"}} {
			all = append(all, strings.Fields(d.docker(what...))...)
		}
		slices.Sort(all)
		return all
	}
	before := listed()
	if len(before) != 7+2+2 || !slices.Contains(before, ids["goes"]) {
		t.Fatalf("before there are %q, and the images are %q", before, ids)
	}
	out, err := probe.New(probe.Config{Env: d.env()}).DockerPrune(t.Context(), 7*24*time.Hour, func() bool { return true })
	if err != nil || out.Images != 1 || out.Bytes == 0 {
		t.Errorf("removed are %+v, %v", out, err)
	}
	want := slices.DeleteFunc(slices.Clone(before), func(id string) bool { return id == ids["goes"] })
	if after := listed(); !slices.Equal(after, want) {
		t.Errorf("after there are %q, want %q", after, want)
	}
}
