package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"tugline.dev/tugline/runner/process"
)

// Tools is the machine itself. Its tools are looked for where the system puts them and
// nowhere else.
type Tools struct{ UID int }

// toolTime bounds one tool: a start waits until the runner is ready.
const toolTime = 2 * time.Minute

// Run is of Control.
func (t Tools) Run(ctx context.Context, argv ...string) (out string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	env := []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0"}
	for _, name := range []string{"HOME", "USER", "DBUS_SESSION_BUS_ADDRESS"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	// Over ssh without PAM, and under su, it is not set, and the user's manager is there even so.
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if at := fmt.Sprintf("/run/user/%d", t.UID); dir == "" {
		dir = at
	}
	res, err := process.Run(ctx, process.Cmd{Argv: argv, Env: append(env, "XDG_RUNTIME_DIR="+dir)})
	var exit *process.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return strings.TrimSpace(string(res.Stdout) + string(res.Stderr)), res.ExitCode, err
}

// ownerOf gives the owner of a file and how many names it has.
func ownerOf(st os.FileInfo) (uid int, links uint64) {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), uint64(s.Nlink)
	}
	return -1, 0
}
