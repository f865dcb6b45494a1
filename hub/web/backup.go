package web

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// Archives are made of the cluster, and the cluster is set back to one.
type Archives interface {
	// Backup writes an archive. An error after the first byte breaks the archive off,
	// which is then not whole.
	Backup(ctx context.Context, w io.Writer, passphrase string, output bool) error
	// Restore sets the cluster back to one; caller is the token that stays good.
	Restore(ctx context.Context, r io.Reader, caller fleet.TokenID) (api.Restored, error)
}

const archiveTime = 10 * time.Second // without a byte, then the other side is gone

// backupRoutes serve archives of the cluster.
func (s *Server) backupRoutes() {
	make := op(http.MethodPost, "/v1/backup", "make-backup", "An archive of the cluster's state, as tar", fleet.RoleAdmin)
	huma.Register(s.api, make, wrap(s, func(ctx context.Context, in *struct {
		Body *api.BackupRequest `required:"false"`
	}) (*huma.StreamResponse, error) {
		var b api.BackupRequest
		if in.Body != nil {
			b = *in.Body
		}
		return &huma.StreamResponse{Body: func(hctx huma.Context) {
			_, w := humago.Unwrap(hctx)
			out := &archive{w: w, rc: http.NewResponseController(w)}
			if err := s.cfg.Archives.Backup(ctx, out, b.Passphrase, b.Output); err != nil && !out.begun {
				s.streamFail(hctx, err)
			} else if err != nil {
				s.log.Error("a backup broke off", "err", err)
				panic(http.ErrAbortHandler) // so that the reader sees it
			}
		}}, nil
	}))
	restore := op(http.MethodPut, "/v1/restore", "restore-backup", "Set the cluster back to an archive", fleet.RoleAdmin)
	restore.Description = "Everything that was recorded after the archive was made is undone; running attempts go on once their runners have renewed them. Needs the role admin."
	restore.Errors = append(restore.Errors, 409, 413)
	restore.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/x-tar": {}}}
	huma.Register(s.api, restore, wrap(s, func(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(hctx huma.Context) {
			r, w := humago.Unwrap(hctx)
			in := &incoming{r: r.Body, rc: http.NewResponseController(w)}
			done, err := s.cfg.Archives.Restore(ctx, in, caller(ctx).ID)
			if err != nil {
				s.streamFail(hctx, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(done) // who went away sees it in the log
		}}, nil
	}))
}

// archive is an answer that begins with its first byte.
type archive struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begun bool
}

func (a *archive) Write(b []byte) (int, error) {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "application/x-tar")
		a.w.Header().Set("Cache-Control", "no-store")
	}
	_ = a.rc.SetWriteDeadline(time.Now().Add(archiveTime)) // where the writer has deadlines
	return a.w.Write(b)
}

// incoming is a body that may be as long as it likes, but not slow without end.
type incoming struct {
	r  io.Reader
	rc *http.ResponseController
}

func (i *incoming) Read(b []byte) (int, error) {
	_ = i.rc.SetReadDeadline(time.Now().Add(archiveTime))
	return i.r.Read(b)
}
