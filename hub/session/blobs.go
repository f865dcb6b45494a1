package session

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	maxParts  = 8                // parts of uploads in memory at once, in all
	partTime  = 5 * time.Minute  // for one part to come in
	fetchTime = 30 * time.Minute // for one answer to go out; a longer one is resumed
)

// FetchBlob is GET and HEAD of /v1/runners/{id}/blobs/{sha256}. GET gives a blob,
// or a range of it, that an open attempt of the runner names. HEAD of one that is
// not stored tells, given ?size=N, how much of an upload of that size is durable.
func (s *Server) FetchBlob(w http.ResponseWriter, r *http.Request) {
	if !s.here(w, r, true) { // the session may have been handed on too
		return
	}
	x, d, err := s.blobRequest(r)
	if err != nil {
		s.problem(w, statusOf(err), err)
		return
	}
	v := s.cfg.Proposer.View()
	if err := s.current(v); err != nil {
		s.problem(w, statusOf(err), err)
		return
	}
	if r.Method == http.MethodHead && x.mayStore(v) {
		s.blobOffset(w, r, d)
		return
	}
	if !x.mayFetch(v, d) {
		s.problem(w, http.StatusForbidden, fmt.Errorf("no open attempt of this runner names blob %s: %w", d, fleet.Forbidden))
		return
	}
	f, size, err := s.cfg.Blobs.Open(r.Context(), d)
	if err != nil {
		s.problem(w, statusOf(err), err)
		return
	}
	defer f.Close()
	s.deadlines(w, fetchTime)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+string(d)+`"`)
	w.Header().Set(wire.OffsetHeader, strconv.FormatInt(size, 10))
	http.ServeContent(w, r, "", time.Time{}, f)
}

// blobOffset answers a HEAD of a runner that may store.
func (s *Server) blobOffset(w http.ResponseWriter, r *http.Request, d fleet.Digest) {
	if info, err := s.cfg.Blobs.Renew(r.Context(), d); err == nil {
		w.Header().Set(wire.OffsetHeader, strconv.FormatInt(info.Size, 10))
		w.Header().Set("Content-Length", strconv.FormatInt(info.Size, 10))
		w.WriteHeader(http.StatusOK)
		return
	}
	offset := int64(0)
	if q := r.URL.Query().Get("size"); q != "" {
		size, err := strconv.ParseInt(q, 10, 64)
		if err != nil {
			s.problem(w, http.StatusBadRequest, fmt.Errorf("size %q is no number: %w", q, fleet.BadRequest))
			return
		}
		if offset, err = s.cfg.Blobs.Offset(r.Context(), d, size); err != nil {
			s.problem(w, statusOf(err), err)
			return
		}
	}
	w.Header().Set(wire.OffsetHeader, strconv.FormatInt(offset, 10))
	w.WriteHeader(http.StatusNotFound)
}

// StoreBlob is PUT /v1/runners/{id}/blobs/{sha256}: a whole small blob, or a part
// of at most wire.MaxPart bytes named by Content-Range. The answer tells in a
// header how many bytes are durable: 201 when the blob is stored, 202 while parts
// are missing, 409 for a part that does not join.
func (s *Server) StoreBlob(w http.ResponseWriter, r *http.Request) {
	if !s.here(w, r, true) { // the session may have been handed on too
		return
	}
	x, d, err := s.blobRequest(r)
	if err != nil {
		s.problem(w, statusOf(err), err)
		return
	}
	v := s.cfg.Proposer.View()
	if err := s.current(v); err != nil {
		s.problem(w, statusOf(err), err)
		return
	}
	if !x.mayStore(v) {
		s.problem(w, http.StatusForbidden, fmt.Errorf("this runner has no attempt that a blob could belong to: %w", fleet.Forbidden))
		return
	}
	offset, total, err := partOf(r)
	if err != nil {
		s.problem(w, statusOf(err), err)
		return
	}
	ctx, done := s.bounded(r.Context())
	defer done()
	select {
	case s.parts <- struct{}{}:
		defer func() { <-s.parts }()
	case <-ctx.Done():
		return
	}
	s.deadlines(w, partTime)
	part, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxPart))
	if err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			s.problem(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the part has over %d bytes: %w", wire.MaxPart, fleet.TooLarge))
		}
		return
	}
	if r.ContentLength != int64(len(part)) {
		s.problem(w, http.StatusBadRequest, fmt.Errorf("the part has %d bytes instead of %d: %w", len(part), r.ContentLength, fleet.BadRequest))
		return
	}
	durable, stored, err := s.cfg.Blobs.Add(ctx, d, total, part, offset)
	var gap *blob.GapError
	if errors.As(err, &gap) {
		durable = gap.Want
	}
	w.Header().Set(wire.OffsetHeader, strconv.FormatInt(durable, 10))
	switch {
	case err != nil:
		s.problem(w, statusOf(err), err)
	case stored:
		w.WriteHeader(http.StatusCreated)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// blobRequest sees whose request it is, by the key of a live session.
func (s *Server) blobRequest(r *http.Request) (*session, fleet.Digest, error) {
	auth := r.Header.Get("Authorization")
	id, err := wire.BlobSession(auth)
	if err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	x := s.byID[id]
	s.mu.Unlock()
	if x == nil || x.goodbye() != nil || string(x.runner) != r.PathValue("id") {
		return nil, "", fmt.Errorf("the session that the request names has ended: %w", fleet.SessionEnded)
	}
	if err := wire.VerifyBlobAuth(x.key, auth, r.Method, r.URL.EscapedPath()); err != nil {
		return nil, "", err
	}
	d := fleet.Digest(r.PathValue("sha256"))
	if !d.Valid() {
		return nil, "", fmt.Errorf("%q is no SHA-256 in hex: %w", d, fleet.BadRequest)
	}
	return x, d, nil
}

// mayFetch says whether an open attempt of the runner names the blob as an input, or it
// is the program that the runner is to have.
func (x *session) mayFetch(v state.View, d fleet.Digest) bool {
	if r, ok := v.Runner(x.runner); ok {
		if u := x.srv.cfg.Update(v, r); u != nil && u.SHA256 == d {
			return true
		}
	}
	return slices.ContainsFunc(v.OpenOf(x.runner), func(o state.Open) bool {
		in := []fleet.Digest{o.Turn.Prompt, o.Job.Spec.ArgvBlob}
		if o.Job.Spec.Repo != nil {
			in = append(in, o.Job.Spec.Repo.Bundle)
		}
		if r, _ := resume(o.Job, o.Turn, o.Attempt); r != nil {
			in = append(in, r.Bundle)
		}
		return slices.Contains(in, d)
	})
}

// mayStore says whether the runner has an attempt whose results may still come: an
// open one, or one that it still shows.
func (x *session) mayStore(v state.View) bool {
	if len(v.OpenOf(x.runner)) > 0 {
		return true
	}
	x.mu.Lock()
	views := x.views
	x.mu.Unlock()
	return slices.ContainsFunc(views, func(w wire.AttemptView) bool {
		_, _, a, err := x.own(v, w.Job, w.Fence)
		if err != nil {
			return x.ownOrphan(v, w.Job, w.Fence) != nil
		}
		return a.AcceptedAt != nil
	})
}

// partOf reads which part of a blob a request carries.
func partOf(r *http.Request) (offset, total int64, err error) {
	bad := func(format string, a ...any) (int64, int64, error) {
		return 0, 0, fmt.Errorf("%s: %w", fmt.Sprintf(format, a...), fleet.BadRequest)
	}
	if r.ContentLength < 0 {
		return bad("the request does not say its length")
	}
	if r.ContentLength > wire.MaxPart {
		return 0, 0, fmt.Errorf("a part of %d bytes, at most %d: %w", r.ContentLength, wire.MaxPart, fleet.TooLarge)
	}
	h := r.Header.Get("Content-Range")
	if h == "" {
		return 0, r.ContentLength, nil
	}
	rest, ok := strings.CutPrefix(h, "bytes ")
	span, all, ok2 := strings.Cut(rest, "/")
	from, to, ok3 := strings.Cut(span, "-")
	a, err1 := strconv.ParseInt(from, 10, 64)
	b, err2 := strconv.ParseInt(to, 10, 64)
	total, err3 := strconv.ParseInt(all, 10, 64)
	switch {
	case !ok || !ok2 || !ok3 || err1 != nil || err2 != nil || err3 != nil:
		return bad("Content-Range %q is not bytes FIRST-LAST/TOTAL", h)
	case a < 0 || b < a || b >= total:
		return bad("Content-Range %q has no sense", h)
	case b-a+1 != r.ContentLength:
		return bad("Content-Range %q does not fit %d bytes", h, r.ContentLength)
	}
	return a, total, nil
}

// deadlines bounds how long one slow runner may take over a request.
func (s *Server) deadlines(w http.ResponseWriter, d time.Duration) {
	at := s.now().Add(d)
	c := http.NewResponseController(w)
	if err := errors.Join(c.SetReadDeadline(at), c.SetWriteDeadline(at)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		s.cfg.Logger.Debug("set deadlines of a blob request", "err", err)
	}
}
