// Package installers carries what puts a runner in place on a machine: templates of the
// units for systemd and launchd, the script that a hub serves, and a Homebrew formula.
//
// It guarantees that they are those of the same build. What is filled in, and how it is
// made safe there, is left to runner/service, hub/web and installers/packages.
package installers

import _ "embed"

// Templates for text/template.
var (
	// SystemdAgent is a unit of a user's own service manager.
	//go:embed runner/agent.service
	SystemdAgent string
	// SystemdDaemon is a unit of the machine's.
	//go:embed runner/daemon.service
	SystemdDaemon string
	// Launchd is the property list of a LaunchAgent and of a LaunchDaemon.
	//go:embed runner/runner.plist
	Launchd string
	// Script is what a hub serves as /install.sh.
	//go:embed runner/install.sh
	Script string
	// Formula is a Homebrew formula.
	//go:embed homebrew/tugline.rb.tmpl
	Formula string
)
