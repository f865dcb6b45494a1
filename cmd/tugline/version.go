package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker in releases.
var version string

// build is what the binary says of itself.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Time     string `json:"time"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func thisBuild() build {
	b := build{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.time":
				b.Time = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
		if v := info.Main.Version; b.Version == "" && v != "" && v != "(devel)" {
			b.Version = v
		}
	}
	if b.Version == "" {
		b.Version = "dev"
		if len(b.Revision) >= 12 {
			b.Version = "dev-" + b.Revision[:12]
		}
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	return local(a.jsonFlag(&cobra.Command{
		Use: "version", Short: "Show the version of this binary", GroupID: groupElse, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if a.json {
				return a.printJSON(b)
			}
			fmt.Fprintf(a.out, "tugline %s %s/%s %s\n", b.Version, b.OS, b.Arch, b.Go)
			return nil
		},
	}))
}
