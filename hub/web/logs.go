package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (s *Server) logRoutes() {
	huma.Register(s.api, op(http.MethodGet, "/v1/jobs/{id}/log", "get-log", "Recorded output of an attempt", fleet.RoleViewer), wrap(s, s.log_))
	huma.Register(s.api, op(http.MethodGet, "/v1/jobs/{id}/artifacts", "list-artifacts", "Files of a job", fleet.RoleViewer), wrap(s, func(ctx context.Context, in *struct {
		ID string `path:"id"`
	}) (*struct{ Body api.Artifacts }, error) {
		j, err := find(s.cfg.Log.View(), in.ID)
		if err != nil {
			return nil, err
		}
		return &struct{ Body api.Artifacts }{api.Artifacts{Artifacts: s.artifacts(ctx, j)}}, nil
	}))
	huma.Register(s.api, op(http.MethodGet, "/v1/jobs/{id}/artifacts/{name}", "get-artifact", "One file of a job", fleet.RoleViewer), wrap(s, s.artifact))
}

type logIn struct {
	ID      string `path:"id"`
	Turn    int    `query:"turn" doc:"default: the newest"`
	Attempt int    `query:"attempt" doc:"default: the turn's current one"`
	Stream  string `query:"stream" enum:"output,events" default:"output" doc:"output: what the process wrote; events: what the agent's CLI reported, JSON lines"`
	Format  string `query:"format" enum:"text,frames" default:"text" doc:"of output. text: stdout and stderr as they came; frames: with stream and time, as PROTOCOL.md says"`
	Follow  bool   `query:"follow" doc:"go on until the log is sealed"`
	From    int64  `query:"from" minimum:"0" doc:"byte to begin at; only with frames or events"`
}

// log_ streams an attempt's recorded bytes. The name leaves log to the logger.
func (s *Server) log_(ctx context.Context, in *logIn) (*huma.StreamResponse, error) {
	j, err := find(s.cfg.Log.View(), in.ID)
	if err != nil {
		return nil, err
	}
	_, a, err := pick(j, in.Turn, in.Attempt)
	if err != nil {
		return nil, err
	}
	if s.lacks(ctx, spool.Key{Job: j.ID, Fence: a.Fence, Name: spool.Name(in.Stream)}, a) {
		return s.leaders(), nil
	}
	if s.expired(ctx, j, a, spool.Name(in.Stream)) {
		return nil, wrong(fleet.NotFound, "the %s of attempt %d of job %s was deleted: its keep time has passed", in.Stream, a.N, j.ID)
	}
	text := in.Format == "text" && in.Stream == "output"
	if text && in.From > 0 {
		return nil, wrong(fleet.BadRequest, "from counts bytes of frames; use it with format=frames")
	}
	key := spool.Key{Job: j.ID, Fence: a.Fence, Name: spool.Name(in.Stream)}
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		reqctx, leave := s.allowed(ctx.Context())
		defer leave()
		// A log that the record calls sealed grows no more, even where it never came whole.
		r, err := s.cfg.Spool.Reader(reqctx, key, in.From, in.Follow && !a.Log.Sealed)
		if err != nil {
			s.streamFail(ctx, err)
			return
		}
		defer r.Close()
		ctx.SetHeader("Tugline-Attempt", strconv.Itoa(a.N))
		ctx.SetHeader("Tugline-Fence", a.Fence.String())
		if text {
			ctx.SetHeader("Content-Type", "text/plain; charset=utf-8")
			err = s.textOf(flusher(ctx), r, j.ID, a.Fence)
		} else {
			ctx.SetHeader("Content-Type", "application/octet-stream")
			if in.Stream == "output" && !in.Follow {
				err = copyFrames(flusher(ctx), r)
			} else {
				_, err = io.Copy(flusher(ctx), r)
			}
		}
		switch {
		case err == nil, errors.Is(err, fleet.NotFound): // nothing was written yet
		case errors.Is(err, io.ErrUnexpectedEOF) && !in.Follow: // the rest of a frame is on its way
		default:
			if reqctx.Err() == nil {
				s.log.Warn("log stream ended early", "job", j.ID, "err", err)
			}
			panic(http.ErrAbortHandler) // else the reader would take it for the end
		}
	}}, nil
}

// expired says whether a stream was recorded whole and is no longer there.
func (s *Server) expired(ctx context.Context, j *fleet.Job, a *fleet.Attempt, n spool.Name) bool {
	had := a.Log.Durable
	if n == spool.Events {
		had = a.Log.Events
	}
	return a.Log.Sealed && had > 0 && s.cfg.Spool.Longest(ctx, spool.Key{Job: j.ID, Fence: a.Fence, Name: n}) == 0
}

// pick finds the attempt that a request means.
func pick(j *fleet.Job, turn, attempt int) (*fleet.Turn, *fleet.Attempt, error) {
	tu := j.Turn()
	if turn != 0 {
		if turn < 1 || turn > len(j.Turns) {
			return nil, nil, wrong(fleet.NotFound, "job %s has turns 1 to %d, not %d", j.ID, len(j.Turns), turn)
		}
		tu = j.Turns[turn-1]
	}
	a := latest(tu)
	if attempt != 0 {
		if attempt < 1 || attempt > len(tu.Attempts) {
			return nil, nil, wrong(fleet.NotFound, "turn %d of job %s has %d attempts, not %d", tu.N, j.ID, len(tu.Attempts), attempt)
		}
		a = tu.Attempts[attempt-1]
	}
	if a == nil {
		return nil, nil, wrong(fleet.NotFound, "job %s is %s and has no attempt yet, so no output", j.ID, j.State)
	}
	return tu, a, nil
}

// textOf writes the text of a stream, and where that is sealed without its end, why. The
// note is recorded first, and the seal in the record last.
func (s *Server) textOf(w io.Writer, r io.Reader, id fleet.JobID, f fleet.Fence) error {
	err := copyText(w, r)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	j, ok := s.cfg.Log.View().Job(id)
	if !ok {
		return err
	}
	_, a := j.Find(f)
	if a == nil {
		return err
	}
	if note := fleet.CutNote(a.Notes); note != "" {
		_, err = fmt.Fprintf(w, "[tugline: %s]\n", note)
	}
	return err
}

// copyText writes the payload of output frames, marks as a line of their own.
func copyText(w io.Writer, r io.Reader) error {
	fr := fleet.NewFrameReader(r)
	for {
		f, err := fr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if f.Kind == fleet.FrameMark {
			_, err = fmt.Fprintf(w, "[tugline: %s]\n", f.Payload)
		} else {
			_, err = w.Write(f.Payload)
		}
		if err != nil {
			return err
		}
	}
}

// copyFrames writes whole frames, so that an answer that is to end now does not end
// within one. Bytes that are no frames, because they begin inside one or are
// damaged, go as they are.
func copyFrames(w io.Writer, r io.Reader) error {
	var seen bytes.Buffer // since the last whole frame
	src := bufio.NewReaderSize(r, 64<<10)
	fr := fleet.NewFrameReader(io.TeeReader(src, &seen))
	for {
		_, err := fr.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, fleet.ErrBadFrame):
			_, err = io.Copy(w, io.MultiReader(&seen, src))
			return err
		case err != nil:
			return err
		}
		if _, err := seen.WriteTo(w); err != nil {
			return err
		}
	}
}

// flusher writes through at once, so that a follower sees bytes as they come, and
// gives up on a reader that takes none for long.
func flusher(ctx huma.Context) io.Writer {
	w := ctx.BodyWriter()
	if rw, ok := w.(http.ResponseWriter); ok {
		return flushing{rw, http.NewResponseController(rw)}
	}
	return w
}

type flushing struct {
	io.Writer
	rc *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	_ = f.rc.SetWriteDeadline(now().Add(slowest)) // where the writer has deadlines
	n, err := f.Writer.Write(p)
	if err == nil {
		err = f.rc.Flush()
	}
	return n, err
}

// streamFail answers with a problem where the library does not do it.
func (s *Server) streamFail(ctx huma.Context, err error) {
	s.problemOf(err).write(ctx.SetHeader, ctx.SetStatus, ctx.BodyWriter())
}

// artifacts lists the files of a job's attempts, the newest turn's last.
func (s *Server) artifacts(ctx context.Context, j *fleet.Job) []api.Artifact {
	out := []api.Artifact{}
	for _, tu := range j.Turns {
		for _, a := range tu.Attempts {
			if a.Evidence == nil {
				continue
			}
			add := func(name string, d fleet.Digest, size int64, typ string) {
				if d == "" {
					return
				}
				_, err := s.cfg.Blobs.Stat(ctx, d)
				out = append(out, api.Artifact{Name: name, SHA256: d, Size: size, Type: typ, Turn: tu.N, Attempt: a.N, Stored: err == nil})
			}
			e := a.Evidence
			add("patch", e.Patch, e.PatchSize, "text/x-diff")
			add("bundle", e.Bundle, e.BundleSize, "application/x-git-bundle")
			for _, f := range e.Artifacts {
				if f.Name == "patch" || f.Name == "bundle" {
					f.Name = "artifacts/" + f.Name // a run's own file must not pass for its proven changes
				}
				add(f.Name, f.Digest, f.Size, f.Type)
			}
		}
	}
	return out
}

func (s *Server) artifact(ctx context.Context, in *struct {
	ID      string `path:"id"`
	Name    string `path:"name"`
	Turn    int    `query:"turn" doc:"default: the newest that has it"`
	Attempt int    `query:"attempt"`
}) (*huma.StreamResponse, error) {
	j, err := find(s.cfg.Log.View(), in.ID)
	if err != nil {
		return nil, err
	}
	var found *api.Artifact
	for _, a := range s.artifacts(ctx, j) {
		if a.Name == in.Name && (in.Turn == 0 || a.Turn == in.Turn) && (in.Attempt == 0 || a.Attempt == in.Attempt) {
			found = &a
		}
	}
	switch {
	case found == nil:
		return nil, wrong(fleet.NotFound, "job %s has no artifact %q; `tugline job artifacts %s` lists them", j.ID, in.Name, j.ID)
	case !found.Stored && s.follower():
		return s.leaders(), nil
	case !found.Stored:
		return nil, wrong(fleet.BlobMissing, "the artifact %q of job %s is not on the hub: it was not uploaded yet, or its keep time has passed", in.Name, j.ID)
	}
	return s.blob(ctx, found.SHA256, found.Type)
}

// blob streams a stored blob.
func (s *Server) blob(ctx context.Context, d fleet.Digest, typ string) (*huma.StreamResponse, error) {
	r, size, err := s.cfg.Blobs.Open(ctx, d)
	if errors.Is(err, fleet.BlobMissing) && s.follower() {
		return s.leaders(), nil
	}
	if err != nil {
		return nil, err
	}
	if typ == "" {
		typ = "application/octet-stream"
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		defer r.Close()
		ctx.SetHeader("Content-Type", typ)
		ctx.SetHeader("Content-Length", strconv.FormatInt(size, 10))
		// What a run made is never shown as a page of the hub's own.
		ctx.SetHeader("Content-Disposition", "attachment")
		ctx.SetHeader("Content-Security-Policy", "sandbox; default-src 'none'")
		if _, err := io.Copy(flusher(ctx), r); err != nil {
			s.log.Debug("blob stream ended early", "err", err)
		}
	}}, nil
}
