package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/runner/harness"
)

// rules reads runner.yaml, and sees that what it names is there. Programs that it names are
// run where the others are.
func (d *runnerDoctor) rules() runner.Owner {
	file := runner.OwnerFile(d.data)
	o, err := runner.LoadOwner(file)
	if err != nil {
		d.add("runner.yaml", levelFail, "mend it, and see: tugline runner config check "+quoted(file), "a runner that runs keeps to the last good rules, and one that starts takes nothing: %v", err)
		return runner.DefaultOwner()
	}
	bad := len(d.Findings)
	for _, agent := range slices.Sorted(maps.Keys(o.SessionHomes)) {
		d.folder("session_homes of "+agent, o.SessionHomes[agent])
	}
	for _, dir := range o.SessionDirs {
		d.folder("session_dirs", dir)
	}
	for _, w := range o.Wrong() {
		d.add("runner.yaml", levelWarn, "tugline runner config check "+quoted(file), "%s", w)
	}
	if o.Paused != "" {
		d.add("runner.yaml", levelWarn, "take paused out of "+quoted(file), "nothing new is taken: %s", o.Paused)
	}
	if len(d.Findings) == bad {
		d.add("runner.yaml", levelOK, "", "updates: %s, permissions: %s", o.Updates, o.Permissions)
	}
	return o
}

// folder sees that a folder of runner.yaml is one, and can be looked into by whoever looks.
func (d *runnerDoctor) folder(what, dir string) {
	st, err := os.Stat(dir)
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s is no folder", dir)
	}
	if err == nil {
		_, err = os.ReadDir(dir)
	}
	if err != nil {
		d.add("runner.yaml", levelWarn, "make the folder, let "+d.who+" read it, or change "+quoted(runner.OwnerFile(d.data)), "%s: %v", what, err)
	}
}

// harnesses runs each agent in the service's environment, where the owner says it is.
func (d *runnerDoctor) harnesses(ctx context.Context, o runner.Owner) {
	paths := map[string]string{}
	for name, h := range o.Harnesses {
		if h.Path != "" {
			paths[name] = h.Path
		}
	}
	agents := 0
	for _, h := range harness.Detect(ctx, harness.DetectRequest{Env: d.env, Paths: paths, All: true}) {
		_, named := o.Harnesses[h.Name]
		switch {
		case h.Name == "exec":
		case len(o.Harnesses) > 0 && !named:
			d.add(h.Name, levelOK, "", "not among the harnesses of runner.yaml; jobs that ask for it go elsewhere")
		case h.Path == "" && paths[h.Name] != "":
			d.add(h.Name, levelFail, "correct harnesses: in "+quoted(runner.OwnerFile(d.data))+", or install it there", "runner.yaml says %s: %s", paths[h.Name], h.Detail)
		case h.Path == "" && !harness.Missing(h):
			d.add(h.Name, levelWarn, "run it as "+d.who+", and install it again if it does not start", "%s", h.Detail)
		case h.Path == "" && named:
			d.add(h.Name, levelWarn, "install it and run tugline runner install again from a shell that finds it, or give its path in runner.yaml", "runner.yaml allows it, and it is not found in the service's PATH")
		case h.Path == "":
			d.add(h.Name, levelOK, "", "not found in the service's PATH; jobs that ask for it go elsewhere")
		case h.SignedIn == harness.SignedInNo:
			d.add(h.Name, levelWarn, "sign in as "+d.who+", then tugline harness list", "%s %s, not signed in: %s", h.Path, h.Version, h.Detail)
			agents++
		default:
			d.add(h.Name, levelOK, "", "%s %s, signed in: %s", h.Path, h.Version, h.SignedIn)
			agents++
		}
	}
	if agents == 0 {
		d.add("agents", levelWarn, "install one and run tugline runner install again from a shell that finds it: its PATH is kept", "no agent is found in %s", environment(d.env, "PATH"))
	}
}
