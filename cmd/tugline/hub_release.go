package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/runner/update"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) hubReleaseCommand() *cobra.Command {
	c := group("release", "Versions of this program that runners are given", "",
		a.hubReleaseAddCommand(), a.hubReleaseListCommand(), a.hubReleaseRemoveCommand())
	c.Long = `Releases are signed versions of this program that the hub offers to runners: to those of the ring
canary, then to those that are early, then to all. A release goes on when a runner of the ring was
heard well with it and a job succeeded there; where it fails it is halted. A ring without runners
is passed over. ` + "`tugline runner ring`" + ` says which ring a runner is in. Each runner takes a release when
no job is there and its owner's rules allow it.`
	return c
}

func releasePath(version, below string) string {
	return "/v1/releases/" + url.PathEscape(version) + below
}

func (a *app) hubReleaseAddCommand() *cobra.Command {
	var key string
	c := &cobra.Command{
		Use: "add DIR", Short: "Put signed programs on the hub and offer them to canaries", Args: exactly("DIR"),
		Long: `Put the programs of one version on the hub. DIR has each program with its signature beside it,
PROGRAM.minisig, by ` + "`minisign -S -t 'tugline VERSION OS/ARCH' -m PROGRAM`" + `, and the public key in
minisign.pub. The first release sets the key for the cluster: runners that enrol from then on pin
it, and all further releases are signed by it.`,
		Example: "  minisign -S -t 'tugline 1.4.0 linux/amd64' -m dist/tugline-linux-amd64\n  tugline hub release add dist",
		RunE: func(cmd *cobra.Command, args []string) error {
			b, files, err := readRelease(args[0], key)
			if err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			for i, f := range b.Files {
				if err := a.upload(cmd.Context(), c, files[i], f.SHA256, f.Size, "the program for "+f.OS+"/"+f.Arch); err != nil {
					return err
				}
			}
			var rel api.Release
			if done, err := a.answer(cmd.Context(), acting("/v1/releases", b), &rel); done {
				return err
			}
			fmt.Fprintf(a.out, "release %s is offered to the ring %s\n", line(rel.Version), rel.Ring)
			return nil
		},
	}
	c.Flags().StringVar(&key, "key", "", "`FILE` of the public key (default DIR/minisign.pub)")
	return a.jsonFlag(c)
}

// readRelease verifies what a directory holds of one version.
func readRelease(dir, keyFile string) (b api.AddRelease, files []string, err error) {
	if b.Key, err = readReleaseKey(first(keyFile, filepath.Join(dir, "minisign.pub"))); err != nil {
		return b, nil, err
	}
	sigs, err := filepath.Glob(filepath.Join(dir, "*.minisig"))
	if err != nil || len(sigs) == 0 {
		return b, nil, usage("%s has no *.minisig: sign each program with `minisign -S -t 'tugline VERSION OS/ARCH' -m PROGRAM`", dir)
	}
	for _, s := range sigs {
		file := strings.TrimSuffix(s, ".minisig")
		st, err := os.Stat(file)
		if err != nil {
			return b, nil, usage("%s has no program beside it: %v", s, err)
		}
		if st.Size() == 0 || st.Size() > fleet.MaxProgram {
			return b, nil, usage("%s is %s; a program has up to %s", file, size(st.Size()), size(fleet.MaxProgram))
		}
		program, err := os.ReadFile(file)
		if err != nil {
			return b, nil, err
		}
		sig, err := os.ReadFile(s)
		if err != nil {
			return b, nil, err
		}
		version, system, arch, err := update.Signed(b.Key, string(sig), program)
		if err != nil {
			return b, nil, usage("%s: %v", file, err)
		}
		if b.Version != "" && b.Version != version {
			return b, nil, usage("%s is of version %s, and another program in %s of %s; a release is one version", file, version, dir, b.Version)
		}
		sum := sha256.Sum256(program)
		b.Version, files = version, append(files, file)
		b.Files = append(b.Files, fleet.ReleaseFile{OS: system, Arch: arch, SHA256: fleet.Digest(hex.EncodeToString(sum[:])), Size: int64(len(program)), Signature: string(sig)})
	}
	return b, files, nil
}

// readReleaseKey reads a public key, past its comment.
func readReleaseKey(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", usage("the public key can't be read: %v; give it with --key FILE", err)
	}
	for l := range strings.Lines(string(b)) {
		if l = strings.TrimSpace(l); fleet.IsReleaseKey(l) {
			return l, nil
		}
	}
	return "", usage("%s holds no minisign public key", file)
}

func (a *app) hubReleaseListCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "Releases, how far each is, and where it failed", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var rs api.Releases
			if done, err := a.answer(cmd.Context(), reading("/v1/releases", nil), &rs); done {
				return err
			}
			if len(rs.Releases) == 0 {
				fmt.Fprintln(a.out, "No releases. `tugline hub release add DIR` adds one.")
				return nil
			}
			t := table{head: []string{"VERSION", "RING", "SINCE", "RUNNERS", "PLATFORMS", "STATE"}, full: !a.ttyOut}
			now := time.Now()
			for _, r := range rs.Releases {
				t.add(r.Version, string(r.Ring), ago(now, &r.Since), runnersOn(&r), platforms(&r), releaseState(&r))
			}
			return t.print(a.out)
		},
	})
}

func releaseState(r *api.Release) string {
	switch {
	case r.Halted != "":
		return "halted: " + r.Halted
	case r.Waits != "":
		return "waits for " + r.Waits
	}
	return "offered"
}

func runnersOn(r *api.Release) string {
	good, failed := 0, 0
	for _, p := range r.Runners {
		if p.Failed != "" {
			failed++
		} else {
			good++
		}
	}
	if failed > 0 {
		return fmt.Sprintf("%d, failed on %d", good, failed)
	}
	return fmt.Sprint(good)
}

func platforms(r *api.Release) string {
	var names []string
	for _, f := range r.Files {
		names = append(names, f.OS+"/"+f.Arch)
	}
	return strings.Join(names, " ")
}

func (a *app) hubReleaseRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "remove VERSION", Aliases: []string{"rm"}, Short: "Forget a release; runners that run it go on with it", Args: exactly("VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			if _, _, err := c.call(cmd.Context(), request{method: http.MethodDelete, path: releasePath(args[0], ""), once: true, patience: actPatience}); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "release %s is removed\n", args[0])
			return nil
		},
	}
}
