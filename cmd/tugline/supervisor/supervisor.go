// Package supervisor is the program as the supervisor of a job. Every job starts one, so it has to be light: importing
// this package has a process that was started as a supervisor do its work, and exit, while the packages that it does
// not need have not been initialised yet. Go initialises packages in the order of their paths as soon as all that they
// import is ready; were it otherwise, only the time would be lost.
package supervisor

import (
	"os"

	"tugline.dev/tugline/runner/process"
)

const exitUsage = 2

func init() {
	if args := os.Args; len(args) > 1 && args[1] == process.SuperviseCommand {
		if len(args) != 3 {
			os.Exit(exitUsage)
		}
		os.Exit(process.Supervise(args[2]))
	}
}
