package web

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"os"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// loadTime is how long a program may take to reach whoever fetches it.
const loadTime = 15 * time.Minute

// serveScript gives the script that puts a runner on a machine. It holds nothing secret.
func (s *Server) serveScript(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/x-shellscript; charset=utf-8")
	w.Write([]byte(s.cfg.Script()))
}

// serveProgram gives the program of a platform. It is for everybody who can reach the hub,
// as the script is: whoever runs it holds it against the sum in a ticket.
func (s *Server) serveProgram(w http.ResponseWriter, r *http.Request) {
	if arch, ok := strings.CutSuffix(r.PathValue("arch"), ".minisig"); ok {
		s.serveSignature(w, r, arch)
		return
	}
	path, sum, err := s.cfg.Program(r.PathValue("os"), r.PathValue("arch"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if !s.loads.TryAcquire() {
		s.fail(w, r, wrong(fleet.Unavailable, "%d programs are fetched from this node at once; try again in a minute", maxLoads))
		return
	}
	defer s.loads.Release()
	f, err := os.Open(path)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer f.Close()
	raw, err := hex.DecodeString(string(sum))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(loadTime))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(raw)+":")
	http.ServeContent(w, r, "", time.Time{}, f)
}

// serveSignature gives that of a program, from the path of the program and .minisig.
func (s *Server) serveSignature(w http.ResponseWriter, r *http.Request, arch string) {
	text, err := s.cfg.Signature(r.PathValue("os"), arch)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write([]byte(text))
}
