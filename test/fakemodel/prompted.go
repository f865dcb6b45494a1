package fakemodel

import "regexp"

// Prompted is the scenario of those who are told by their prompt which one to play: an
// account that is set up once, with one address, can so be given any. The prompt must
// carry what Prompt gives.
const Prompted = "prompted"

// Prompt is what a prompt says to have a run of a scenario played.
func Prompt(scenario, nonce string) string { return "(Script " + scenario + "/" + nonce + ".)" }

var promptedRE = regexp.MustCompile(`\(Script ([a-z0-9-]+)/([A-Za-z0-9-]+)\.\)`)
