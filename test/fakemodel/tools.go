package fakemodel

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// tool is one that a client offers.
type tool struct {
	name, namespace string
	freeform        bool            // takes text, not JSON
	takes           map[string]bool // names of its arguments
}

// toolbox holds the tools of a request by name.
type toolbox map[string]tool

// call is a call of a client's tool.
type call struct {
	tool
	args  obj
	input string // of a freeform tool
}

func (c call) argsJSON() string {
	b, err := json.Marshal(c.args)
	if err != nil {
		panic("fakemodel: arguments that are no JSON: " + err.Error())
	}
	return string(b)
}

// add takes a tool in; its arguments are the properties of its JSON schema.
func (t toolbox) add(name, namespace string, freeform bool, schema any) {
	if name == "" {
		return
	}
	n := tool{name: name, namespace: namespace, freeform: freeform, takes: map[string]bool{}}
	s, _ := schema.(obj)
	props, _ := s["properties"].(obj)
	for p := range props {
		n.takes[p] = true
	}
	t[name] = n
}

// part renders an item with the client's tools. Without a fitting tool it gives
// words that say so, and false.
func (t toolbox) part(it Item, dir string) (part, bool) {
	switch {
	case it.Say != "":
		return part{say: it.Say}, true
	case it.Think != "":
		return part{think: it.Think}, true
	case it.Run != "":
		if c := t.run(it.Run, it.Limit); c != nil {
			return part{call: c}, true
		}
	case it.Write != nil:
		if c := t.write(*it.Write, dir); c != nil {
			return part{call: c}, true
		}
	}
	return part{say: "I have no tool for this."}, false
}

// shells lists the shell tools of the clients: name, the argument that holds the
// command line, and the one that holds a limit in milliseconds.
var shells = []struct{ name, line, limit string }{
	{"exec_command", "cmd", "yield_time_ms"},
	{"shell_command", "command", "timeout_ms"},
	{"shell", "command", "timeout_ms"},
	{"Bash", "command", "timeout"},
	{"bash", "command", "timeout"},
}

func (t toolbox) run(line string, limit time.Duration) *call {
	for _, s := range shells {
		tl, ok := t[s.name]
		if !ok {
			continue
		}
		args := obj{s.line: line}
		if s.name == "shell" {
			args[s.line] = []string{"bash", "-lc", line}
		}
		if limit > 0 {
			args[s.limit] = limit.Milliseconds()
		}
		if tl.takes["description"] {
			args["description"] = "Run a scripted command"
		}
		return &call{tool: tl, args: args}
	}
	return nil
}

func (t toolbox) write(f File, dir string) *call {
	if tl, ok := t["apply_patch"]; ok {
		c := &call{tool: tl, input: addPatch(f)}
		arg := "input"
		if tl.takes["patchText"] {
			arg = "patchText"
		}
		c.args = obj{arg: c.input}
		return c
	}
	path := f.Path
	if !filepath.IsAbs(path) && dir != "" {
		path = filepath.Join(dir, path)
	}
	if tl, ok := t["Write"]; ok {
		return &call{tool: tl, args: obj{"file_path": path, "content": f.Text}}
	}
	if tl, ok := t["write"]; ok {
		return &call{tool: tl, args: obj{"filePath": path, "content": f.Text}}
	}
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	return t.run("printf %s "+quote(f.Text)+" > "+quote(f.Path), 0)
}

// addPatch is a patch in the apply_patch notation that creates a file.
func addPatch(f File) string {
	lines := strings.Split(strings.TrimSuffix(f.Text, "\n"), "\n")
	return "*** Begin Patch\n*** Add File: " + f.Path + "\n+" + strings.Join(lines, "\n+") + "\n*** End Patch"
}

// dirRE finds the folder that a client works in, which each of them tells its
// model: some want absolute paths in their file tools.
var dirRE = regexp.MustCompile(`(?:[Ww]orking directory: |<cwd>)([^<\n"]+)`)

func workDir(words string) string {
	if m := dirRE.FindStringSubmatch(words); m != nil {
		return strings.TrimSpace(m[1])
	}
	return ""
}
