//go:build !fault

package main

import "tugline.dev/tugline/hub"

// beset changes nothing: faults are only in builds for the fault suite.
func beset(*hub.Config) error { return nil }
