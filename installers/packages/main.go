// Command packages writes what packages of the program are made from, out of the same
// templates as an installation by hand: the unit, who looks after the program, a version
// that package managers order as it is meant, and a Homebrew formula.
//
//	packages version v1.4.0-rc.1                      the version as packages have it
//	packages files DIR                                what nfpm.yaml puts into them
//	packages formula VERSION URL DIR                  of DIR/tugline-OS-ARCH, found below URL
//
// It makes no package itself: nfpm does.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"tugline.dev/tugline/installers"
	"tugline.dev/tugline/runner/service"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "version":
		_, err := fmt.Fprintln(out, versionOf(args[1]))
		return err
	case len(args) == 2 && args[0] == "files":
		return files(args[1])
	case len(args) == 4 && args[0] == "formula":
		return formula(out, args[1], args[2], args[3])
	}
	return errors.New("usage: packages version VERSION | files DIR | formula VERSION URL DIR")
}

// described is a version as git describes it: a release, what leads to one, or commits
// after either.
var described = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.-]+?))??(?:-(\d+)-g([0-9a-f]+))?(-dirty)?$`)

// versionOf gives a version as dpkg and rpm order it: with a tilde it comes before, with a
// plus after.
func versionOf(v string) string {
	m := described.FindStringSubmatch(v)
	if m == nil {
		return "0.0.0+" + strings.Trim(regexp.MustCompile(`[^0-9A-Za-z.]+`).ReplaceAllString(v, "."), ".")
	}
	out := m[1]
	if m[2] != "" {
		out += "~" + strings.ReplaceAll(m[2], "-", ".")
	}
	if m[3] != "" {
		out += "+" + m[3] + ".g" + m[4]
	}
	if m[5] != "" {
		out += "+dirty"
	}
	return out
}

// files writes what is in packages beside the program.
func files(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unit, err := service.PackagedUnit()
	if err != nil {
		return err
	}
	all := map[string][]byte{service.UnitName: unit}
	for _, manager := range []string{"deb", "rpm"} {
		b, err := json.Marshal(service.Package{Manager: manager, Program: "/usr/bin/tugline"})
		if err != nil {
			return err
		}
		all[manager+".json"] = append(b, '\n')
	}
	for name, b := range all {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// build is one program of a release, as a formula names it.
type build struct{ Name, URL, SHA256 string }

type system struct {
	Name     string
	Programs []build
}

// formula writes a Homebrew formula for the programs of a release.
func formula(out io.Writer, version, url, dir string) error {
	m := described.FindStringSubmatch(version)
	if m == nil || m[3]+m[5] != "" {
		return fmt.Errorf("%q is no release", version)
	}
	if !strings.HasPrefix(url, "https://") || strings.ContainsAny(url, "\"\\#\n ") {
		return fmt.Errorf("%q is no https address", url)
	}
	plist, unit, err := service.FormulaFiles()
	if err != nil {
		return err
	}
	data := struct {
		Version, Label, Plist, Unit string
		Systems                     []system
	}{Version: strings.TrimPrefix(version, "v"), Label: service.Label, Plist: string(plist), Unit: string(unit)}
	for _, os := range [][2]string{{"darwin", "macos"}, {"linux", "linux"}} {
		s := system{Name: os[1]}
		for _, arch := range [][2]string{{"arm64", "arm"}, {"amd64", "intel"}} {
			file := "tugline-" + os[0] + "-" + arch[0]
			sum, err := digest(filepath.Join(dir, file))
			if err != nil {
				return err
			}
			s.Programs = append(s.Programs, build{Name: arch[1], URL: strings.TrimSuffix(url, "/") + "/" + file, SHA256: sum})
		}
		data.Systems = append(data.Systems, s)
	}
	t, err := template.New("tugline.rb").Funcs(template.FuncMap{"indent": indent}).Parse(installers.Formula)
	if err != nil {
		return err
	}
	return t.Execute(out, data)
}

// indent puts lines where a squiggly heredoc takes them from.
func indent(text string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		if l != "\n" {
			l = "      " + l
		}
		b.WriteString(l)
	}
	return b.String()
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
