package service

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"

	"tugline.dev/tugline/installers"
)

// filling is what the templates are filled with.
type filling struct {
	Layout
	Origin      string // who wrote the file
	Label       string
	Arguments   []string   // the command line
	Variables   []variable // of the environment
	Environment []string   // the same, NAME=VALUE each
	Errors      string     // where launchd puts what the program says outside its log
}

// writtenHere is said of what an installation writes.
const writtenHere = "`tugline runner install` wrote this file; run again, it brings it up to date."

// render gives the text of the unit or the property list.
func render(l Layout, vars []variable) ([]byte, error) {
	f := filling{Layout: l, Origin: writtenHere, Label: Label, Variables: vars, Errors: filepath.Join(l.Data, "logs", "launchd.log")}
	if l.DropIn != "" {
		f.Origin = "It came with a package; `tugline runner install` enrols and starts it, and adds what holds on this machine."
	}
	f.Arguments = []string{l.Program(), "runner", "run", "--data-dir", l.Data}
	return fill(f)
}

// fill fills in the template of a layout.
func fill(f filling) ([]byte, error) {
	l := f.Layout
	for _, v := range f.Variables {
		f.Environment = append(f.Environment, v.Name+"="+v.Value)
	}
	for _, s := range append(f.Arguments, f.Environment...) {
		if err := plain(s); err != nil {
			return nil, err
		}
	}
	text := installers.Launchd
	switch {
	case l.Init == Systemd && l.Mode == Agent:
		text = installers.SystemdAgent
	case l.Init == Systemd:
		text = installers.SystemdDaemon
	}
	t, err := template.New(filepath.Base(l.Unit)).Option("missingkey=error").Funcs(template.FuncMap{"start": commandLine, "unit": unitWord, "xml": xmlText}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", l.Unit, err)
	}
	var b strings.Builder
	if err := t.Execute(&b, f); err != nil {
		return nil, fmt.Errorf("render %s: %w", l.Unit, err)
	}
	return []byte(b.String()), nil
}

// commandLine gives the value of ExecStart.
func commandLine(f filling) string {
	var words []string
	for _, a := range f.Arguments {
		words = append(words, unitWord(a))
	}
	line := strings.Join(words, " ")
	if strings.Contains(line, "$") {
		return ":" + line // systemd then leaves dollars alone, also in the path, where they can't be escaped
	}
	return line
}

// unitWord writes a word so that systemd reads it back as it is: a percent sign begins a
// specifier, and quotes and backslashes are as in a shell.
func unitWord(s string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(s)
	if escaped == s && s != "" && !strings.ContainsAny(s, " '#;") {
		return s
	}
	return `"` + escaped + `"`
}

func xmlText(s string) (string, error) {
	var b strings.Builder
	err := xml.EscapeText(&b, []byte(s))
	return b.String(), err
}
