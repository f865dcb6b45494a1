package main

import (
	"runtime"

	"github.com/spf13/pflag"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/runner/keychain"
)

// keychainFlag adds the flag that says where the runner's keys are kept.
func keychainFlag(f *pflag.FlagSet) *bool {
	return f.Bool("keychain", false, "seal the runner's keys by one in your login Keychain (macOS, agent mode)")
}

// keychainGiven takes over what was said by the flag, now or at an earlier start.
func keychainGiven(f *pflag.FlagSet, on bool, cfg *runner.Config) error {
	if runtime.GOOS == "darwin" {
		cfg.Keychain = keychain.Security{}
	}
	if !f.Changed("keychain") {
		return nil
	}
	if on && cfg.Keychain == nil {
		return usage("--keychain is about the Keychain of a Mac; on this machine the runner's keys lie in its data directory, in identity.json (0600)")
	}
	cfg.InKeychain = &on
	return nil
}
