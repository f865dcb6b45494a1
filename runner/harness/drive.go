package harness

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// DriveRequest says what DriveOpencode is to do. Nothing in it is secret: it travels in an argv.
type DriveRequest struct {
	Program    string // of opencode, absolute
	Dir        string // working directory, absolute
	Model      string // PROVIDER/MODEL, "" for opencode's own choice
	Session    string // to take up, "" for a new one
	ApproveAll bool   // answer opencode's questions for permission with yes
}

// Args gives the words after the name of the tugline binary that lead to Drive.
func (r DriveRequest) Args() []string {
	args := []string{"drive", "opencode", "--program", r.Program, "--dir", r.Dir}
	if r.Model != "" {
		args = append(args, "--model", r.Model)
	}
	if r.Session != "" {
		args = append(args, "--session", r.Session)
	}
	if r.ApproveAll {
		args = append(args, "--approve-all")
	}
	return args
}

// Drive is the hidden subcommand `drive` of the tugline binary: args are the words after it, the prompt comes on
// stdin, events go to stdout. SIGINT and SIGTERM end the run gently. It gives the exit code: 0 when the turn ended
// by itself and without an error, 1 otherwise, 2 for wrong words.
func Drive(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 || args[0] != "opencode" {
		fmt.Fprintln(stderr, "drive: want the name of a harness that is driven: opencode")
		return 2
	}
	var r DriveRequest
	fs := flag.NewFlagSet("drive opencode", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&r.Program, "program", "", "path of opencode")
	fs.StringVar(&r.Dir, "dir", "", "working directory")
	fs.StringVar(&r.Model, "model", "", "PROVIDER/MODEL")
	fs.StringVar(&r.Session, "session", "", "session to take up")
	fs.BoolVar(&r.ApproveAll, "approve-all", false, "grant every permission asked for")
	if err := fs.Parse(args[1:]); err != nil {
		return 2
	}
	if fs.NArg() > 0 || !filepath.IsAbs(r.Program) || !filepath.IsAbs(r.Dir) || r.Session != "" && !opencodeSession().MatchString(r.Session) {
		fmt.Fprintln(stderr, "drive opencode: want --program and --dir as absolute paths, and a session id if any")
		return 2
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return DriveOpencode(ctx, r, os.Environ(), stdin, stdout, stderr)
}

const (
	driveStart   = 2 * time.Minute         // for the server to listen; seventeen seconds were seen under load
	driveCall    = 30 * time.Second        // for one request to it
	driveSilence = 2 * time.Minute         // without even a heartbeat of the server
	driveFarOff  = 10 * time.Minute        // a next try beyond it is not waited for
	driveFlush   = 250 * time.Millisecond  // pieces of text are gathered for so long
	driveDrain   = 5 * time.Second         // for the last events after an abort
	driveQuiet   = 1500 * time.Millisecond // of silence after an abort that ends the draining
)

// DriveOpencode runs one turn of opencode through a server of its own and tells it on stdout, one JSON object a
// line. The server listens on loopback under a random password and is ended in any case. The end of ctx aborts the
// turn, which ends the command that the agent has running.
func DriveOpencode(ctx context.Context, r DriveRequest, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	d := &driver{req: r, out: stdout, user: map[string]bool{}, kinds: map[string]string{}, running: map[string]bool{}}
	prompt, err := io.ReadAll(io.LimitReader(stdin, fleet.MaxPrompt+1))
	if err == nil && len(prompt) > fleet.MaxPrompt {
		err = fmt.Errorf("it has more than %d bytes", fleet.MaxPrompt)
	}
	if err != nil {
		return d.end(driveStartup, "read the prompt: "+err.Error(), 0)
	}
	srv, err := startServer(ctx, r, env, stderr)
	if err != nil {
		if ctx.Err() != nil {
			return d.end(driveAborted, "stopped before it began", 0)
		}
		return d.end(driveStartup, err.Error(), 0)
	}
	defer srv.stop()
	d.srv = srv
	return d.run(ctx, string(prompt))
}

// errEnd is how a handler of events tells that the run is over.
type errEnd struct {
	reason, detail string
	next           int64
}

func (e *errEnd) Error() string { return e.reason + ": " + e.detail }

// driver is one turn.
type driver struct {
	req     DriveRequest
	out     io.Writer
	srv     *server
	session string

	model   string
	user    map[string]bool   // messages of the user, whose parts are the prompt
	kinds   map[string]string // of parts by id: text or reasoning
	running map[string]bool   // tools whose start is told
	failed  bool
	retried bool
	busy    bool // the turn has begun

	delta opencodeLine // gathered pieces of one part
}

func (d *driver) run(ctx context.Context, prompt string) int {
	// Reading goes on after ctx ends, until the abort has had its effect.
	read, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	events, err := d.srv.events(read)
	if err != nil {
		return d.over(err)
	}
	defer func() {
		cancel()
		for range events {
			// Until the reader is gone.
		}
	}()
	if err := d.begin(read, prompt); err != nil {
		return d.over(err)
	}
	tick := time.NewTicker(driveFlush)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return d.over(&errEnd{reason: driveDied, detail: d.srv.epitaph()})
			}
			last = time.Now()
			if err := d.event(read, e); err != nil {
				return d.over(err)
			}
		case <-tick.C:
			d.flush()
			if time.Since(last) > driveSilence {
				return d.over(&errEnd{reason: driveDied, detail: "the server is silent"})
			}
		case <-ctx.Done():
			d.abort(read)
			d.drain(read, events)
			return d.end(driveAborted, "stopped", 0)
		}
	}
}

// begin makes or takes up the session and hands over the prompt.
func (d *driver) begin(ctx context.Context, prompt string) error {
	var info struct {
		ID        string `json:"id"`
		Directory string `json:"directory"`
	}
	if d.req.Session == "" {
		// A title of ours saves the request that would make one.
		if _, err := d.srv.call(ctx, "POST", "/session", map[string]any{"title": "tugline"}, &info); err != nil {
			return &errEnd{reason: driveStartup, detail: "make a session: " + err.Error()}
		}
	} else {
		status, err := d.srv.call(ctx, "GET", "/session/"+d.req.Session, nil, &info)
		if status == 404 || status == 400 {
			return &errEnd{reason: driveGone, detail: "session " + d.req.Session + " does not exist here"}
		}
		if err != nil {
			return &errEnd{reason: driveStartup, detail: "take up session " + d.req.Session + ": " + err.Error()}
		}
		if !sameDir(info.Directory, d.req.Dir) {
			return &errEnd{reason: driveGone, detail: "session " + d.req.Session + " belongs to the directory " + info.Directory}
		}
	}
	if !opencodeSession().MatchString(info.ID) {
		return &errEnd{reason: driveMalformed, detail: fmt.Sprintf("the server names a session %q", fleet.CutText(info.ID, 80))}
	}
	d.session = info.ID
	d.write(opencodeLine{Event: "session"})
	body := map[string]any{"parts": []any{map[string]any{"type": "text", "text": prompt}}}
	if m := modelParts(d.req.Model); m != nil {
		body["model"] = m
	}
	if _, err := d.srv.call(ctx, "POST", "/session/"+d.session+"/prompt_async", body, nil); err != nil {
		return &errEnd{reason: driveStartup, detail: "hand over the prompt: " + err.Error()}
	}
	return nil
}

func sameDir(a, b string) bool {
	if a == b {
		return true
	}
	ra, err1 := filepath.EvalSymlinks(a)
	rb, err2 := filepath.EvalSymlinks(b)
	return err1 == nil && err2 == nil && ra == rb
}

func (d *driver) abort(ctx context.Context) {
	_, _ = d.srv.call(ctx, "POST", "/session/"+d.session+"/abort", nil, nil)
}

// drain tells what still comes after an abort.
func (d *driver) drain(ctx context.Context, events <-chan serverEvent) {
	whole := time.NewTimer(driveDrain)
	defer whole.Stop()
	for {
		quiet := time.NewTimer(driveQuiet)
		select {
		case e, ok := <-events:
			quiet.Stop()
			if !ok {
				return
			}
			if e.Type != "server.heartbeat" {
				_ = d.event(ctx, e)
			}
		case <-quiet.C:
			return
		case <-whole.C:
			quiet.Stop()
			return
		}
	}
}

// over ends a run for the reason that err tells, and stops opencode where it would go on.
func (d *driver) over(err error) int {
	var e *errEnd
	if !errors.As(err, &e) {
		e = &errEnd{reason: driveDied, detail: err.Error()}
	}
	if d.session != "" && (e.reason == driveQuota || e.reason == driveFar) {
		ctx, cancel := context.WithTimeout(context.Background(), driveDrain)
		defer cancel()
		d.abort(ctx)
	}
	return d.end(e.reason, e.detail, e.next)
}

func (d *driver) end(reason, detail string, next int64) int {
	d.flush()
	d.write(opencodeLine{Event: "end", Reason: reason, Detail: fleet.CutText(detail, 2<<10), Next: next})
	if reason == driveIdle && !d.failed {
		return 0
	}
	return 1
}

func (d *driver) write(l opencodeLine) {
	l.Driver, l.SessionID = "opencode", d.session
	l.Timestamp = time.Now().UnixMilli()
	b, err := json.Marshal(l)
	if err != nil {
		return // every field is a string, a number or JSON that was decoded
	}
	_, _ = d.out.Write(append(b, '\n'))
}
