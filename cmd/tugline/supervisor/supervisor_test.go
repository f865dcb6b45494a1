package supervisor

import (
	"context"
	"os"
	"testing"

	"tugline.dev/tugline/runner/process"
)

// A test binary that imports this package is a supervisor too.
func TestStart(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"no directory":        {nil, 2},
		"two directories":     {[]string{"a", "b"}, 2},
		"nothing to launch":   {[]string{t.TempDir()}, 1},
		"no such directory":   {[]string{t.TempDir() + "/none"}, 1},
		"another word before": {[]string{"-test.list", "^$"}, 2},
	} {
		argv := append([]string{os.Args[0], process.SuperviseCommand}, c.args...)
		if res, _ := process.Run(context.Background(), process.Cmd{Argv: argv}); res.ExitCode != c.code {
			t.Errorf("%s: exit code %d, want %d", name, res.ExitCode, c.code)
		}
	}
	if res, err := process.Run(context.Background(), process.Cmd{Argv: []string{os.Args[0], "-test.list", "^$"}}); err != nil || res.ExitCode != 0 {
		t.Errorf("another word: %v", err)
	}
}
