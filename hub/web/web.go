// Package web is the hub's interface for people and scripts: REST and server-sent
// events under /v1, the OpenAPI document generated from the types that serve it,
// health, readiness and metrics.
//
// It guarantees that a request is authenticated, bounded and checked whole before
// anything is stored; that a creation with an Idempotency-Key happens once; that
// what it answers with a 2xx is committed; and that every refusal is a problem
// document with a stable code. It leaves to others what a command does and which
// runner gets what.
package web

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/hub/web/dashboard"
	"tugline.dev/tugline/hub/web/passkey"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// Log is how the interface reads and changes the replicated state.
type Log interface {
	// ProposeAs commits a command in the name of an actor. A refusal is a result
	// with a code; an error wraps fleet.Unavailable or fleet.OutcomeUnknown.
	ProposeAs(ctx context.Context, h state.Head, cmd state.Command) (state.Result, error)
	View() state.View
}

// Feed gives the committed changes after an index, in order.
type Feed interface {
	// Subscribe fails when changes after the index are no longer held.
	Subscribe(after uint64) (Subscription, error)
}

// Subscription is one reader of the feed. Next fails when the reader fell behind.
type Subscription interface {
	Next(ctx context.Context) (index uint64, last bool, change state.Change, err error)
	Close()
}

// Config is what the interface is made of. What is not said to
// have a default is required, but for Runners, Proxies and Logger.
type Config struct {
	Node     string // this one's id
	Log      Log
	Feed     Feed
	Spool    Spool
	Blobs    Blobs
	Presence func() []fleet.Presence
	Status   func() api.Status // what the node knows beyond the state
	Ready    func() error      // nil when the node can serve writes
	// Settled says that the state holds everything that was committed before the
	// node started; until then nothing is answered from it. nil: always.
	Settled func() bool
	// Peers are the other nodes; nil: there are none, and all is answered here.
	Peers Peers
	// Consistent returns once the state here has all that was committed anywhere
	// before the call; it is asked on the leader. nil: it always has.
	Consistent func(context.Context) error
	// Now gives what time it is for all that expires, whatever this machine's clock
	// says. nil: the later of that and state time.
	Now func() time.Time
	// Seen says which node saw what Presence gives and how long ago that was told; no
	// node where nobody did lately. nil: this one, just now.
	Seen func() (node string, age time.Duration)
	// HealthHistory gives the samples of a runner's machine that this node heard while
	// it led, oldest first, as far back as the window says. It is asked on the leader.
	// nil: none are kept.
	HealthHistory func(r fleet.RunnerID, window time.Duration) []api.HealthPoint
	// Sessions and Session have a runner asked for the sessions of agent CLIs on its
	// machine, and wait for its answer. LastSessions gives the last one to the former, as
	// this node remembers it from leading. They are asked on the leader. nil: nobody is.
	Sessions     func(ctx context.Context, r fleet.RunnerID) (fleet.CLISessions, error)
	LastSessions func(r fleet.RunnerID) (all fleet.CLISessions, age time.Duration, ok bool)
	Session      func(ctx context.Context, r fleet.RunnerID, id string, messages int) (fleet.CLITranscript, error)
	// GiveCredentials seals values for an installation on a runner and keeps them for it;
	// ProvisionStanding says what one waits for, and whether its credentials are gone.
	// Nudge has a runner beat at once. They are asked on the leader. nil: nothing is kept.
	GiveCredentials   func(r *fleet.Runner, id string, values map[string]string) error
	ProvisionStanding func(*fleet.Provision) (waits string, gone bool)
	Nudge             func(fleet.RunnerID)
	// AcceptClock takes a person's word for the clock of the leader's machine.
	AcceptClock func(ctx context.Context, who state.Head) (api.Clock, error)
	// Ticket writes a join ticket around a secret; the command is what to paste.
	Ticket func(secret string, expires time.Time) (ticket, command string)
	// InstallLine is what to paste on a machine to install a runner by a ticket, "" where
	// there is nothing; Script is what the line fetches, Program the file of a platform's
	// program with its sum, and Signature what minisign wrote of it. nil: the node offers none.
	InstallLine func(ticket string) string
	Script      func() string
	Program     func(os, arch string) (path string, sum fleet.Digest, err error)
	Signature   func(os, arch string) (string, error)
	// HubTicket does the same as Ticket for a machine that is to become a hub node, and Guest
	// gives the public key with which the holder of such a secret may knock.
	HubTicket func(secret string, expires time.Time) (ticket, command string, err error)
	Guest     func(secret string) []byte
	// MeshTicket does the same for a runner that reaches the hubs through their tunnel,
	// with the guest's key.
	MeshTicket func(secret string, expires time.Time) (ticket, command string, err error)
	// Cluster are the hub nodes themselves.
	Cluster  Cluster
	Archives Archives
	// Derive gives 32 bytes that only this cluster can derive from the text, the
	// same ones each time: under the key that is active, or under the one so many
	// generations back, nil where there is none.
	Derive func(text string, back int) []byte
	// Keys gives what people may know of the cluster's keys.
	Keys func() api.Keys
	// Rotate replaces one of them; the result's id is KIND/GENERATION. Overlap is how
	// long a CA that is replaced stays trusted.
	Rotate func(ctx context.Context, h state.Head, kind string, overlap time.Duration) (state.Result, error)
	// RotateMesh has a hub node replace its own key of the mesh.
	RotateMesh func(ctx context.Context, id string) error
	// URL is where people reach the hub, PublicURL the same where its operator said so.
	// Without a trailing slash.
	URL, PublicURL string
	// OwnCA says that browsers meet a certificate of the cluster's own authority.
	OwnCA bool
	// Runners serves the paths that belong to runners.
	Runners http.Handler
	// Proxies may set X-Forwarded-For. With ProxiesOnly nobody else but this
	// machine may connect: they end TLS, and what came around them was in the clear.
	Proxies     []netip.Prefix
	ProxiesOnly bool
	Version     string
	Logger      *slog.Logger
}

// Server is the interface of one node.
type Server struct {
	cfg     Config
	log     *slog.Logger
	mux     *http.ServeMux
	api     huma.API
	live    *live
	page    *dashboard.Page
	metrics *metrics
	streams gate // one token an open event stream
	loads   gate // one token a program that is fetched
	waiting gate // one token a cookie that is waited for
	often   *often

	causes causes

	party      *passkey.Party // nil: passkeys are not offered
	noParty    string         // why not
	ceremonies ceremonies

	began time.Time

	seenRunners sightings
	origins     *http.CrossOriginProtection
	life        context.Context
	end         context.CancelFunc
}

// Bounds of requests.
const (
	maxBody    = 1 << 20 // bytes of a JSON body
	maxPart    = 8 << 20 // bytes of one part of an upload
	maxStreams = 512     // open event streams of a node
	maxLoads   = 32      // programs that are fetched at once

	bodyTime = 30 * time.Second // for a JSON body to arrive
	partTime = 5 * time.Minute  // for one part of an upload to arrive
)

// New makes the interface. It starts nothing.
func New(c Config) *Server {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: c, log: c.Logger, mux: http.NewServeMux(), live: newLive(), metrics: newMetrics(c), streams: make(gate, maxStreams), loads: make(gate, maxLoads), waiting: make(gate, maxWaiting), often: newOften(), began: now(), origins: http.NewCrossOriginProtection()}
	s.life, s.end = context.WithCancel(context.Background())
	var err error
	if s.page, err = dashboard.New(dashboard.Files()); err != nil {
		panic(err) // the files lie in the program
	}
	if c.PublicURL != "" { // a proxy may have changed the host that is asked for
		if err := s.origins.AddTrustedOrigin(c.PublicURL); err != nil {
			panic(err) // the configuration was checked
		}
	}
	s.party, s.noParty = partyOf(c.PublicURL, c.OwnCA)
	hc := huma.DefaultConfig("Tugline hub", c.Version)
	hc.OpenAPIPath, hc.DocsPath, hc.SchemasPath = "/openapi", "", ""
	hc.CreateHooks = nil
	hc.Info.Description = "Jobs, runners and their records. Every error is an RFC 9457 problem document with a stable code."
	hc.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	hc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer", Description: "an operator token"},
		"session": {Type: "apiKey", In: "cookie", Name: cookieName, Description: "a browser's session; only the hub's own page may use it"},
	}
	plain := hc.Formats["application/json"].Unmarshal
	unmarshal := func(b []byte, v any) error {
		// The decoder would put another character in the place of what is not one.
		if !utf8.Valid(b) {
			return errors.New("it is not UTF-8 text")
		}
		return plainly(plain(b, v))
	}
	hc.Formats = maps.Clone(hc.Formats)
	for name, f := range hc.Formats {
		f.Unmarshal = unmarshal
		hc.Formats[name] = f
	}
	hc.Security = []map[string][]string{{"token": {}}}
	s.api = humago.New(s.mux, hc)
	s.api.UseMiddleware(s.place, s.authenticate, s.asked, s.fresh)
	s.jobRoutes()
	s.logRoutes()
	s.blobRoutes()
	s.fleetRoutes()
	s.sessionRoutes()
	s.provisionRoutes()
	s.signInRoutes()
	s.passkeyRoutes()
	s.keyRoutes()
	s.eventRoutes()
	s.feedRoutes()
	s.overviewRoutes()
	s.previewRoutes()
	s.causeRoutes()
	s.plainRoutes()
	return s
}

// Handler serves everything, the runners' paths included.
func (s *Server) Handler() http.Handler { return s.protect(s.mux) }

// Close ends every open stream.
func (s *Server) Close() { s.end() }

// Live hands partial events to those who watch the job now.
func (s *Server) Live(job fleet.JobID, events []fleet.Event) { s.live.publish(job, events) }

// OpenAPI gives the generated document as JSON.
func (s *Server) OpenAPI() ([]byte, error) { return s.api.OpenAPI().MarshalJSON() }

// schemaName names a type in the document. The recorded form of a thing gives way
// to the one that the interface shows.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if strings.HasSuffix(t.PkgPath(), "/fleet") {
		switch t.Name() {
		case "Job", "Runner", "Usage", "Token", "Ticket", "Event", "Artifact", "FollowUp", "Attempt", "HealthRecord":
			return "Recorded" + name
		}
	}
	return name
}

// plainRoutes are those outside the document: health, readiness, metrics.
func (s *Server) plainRoutes() {
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	s.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.cfg.Ready(); err != nil {
			s.fail(w, r, err)
			return
		}
		w.Write([]byte("ready\n"))
	})
	s.mux.Handle("GET /metrics", s.guard(fleet.RoleViewer, s.metrics.handler()))
	if s.cfg.Runners != nil {
		for _, p := range []string{"POST /v1/enrol", "/v1/runners/{id}/link", "/v1/runners/{id}/exchange", "/v1/runners/{id}/blobs/{sha256}"} {
			s.mux.Handle(p, s.cfg.Runners)
		}
	}
	if s.cfg.Script != nil {
		s.mux.HandleFunc("GET /install.sh", s.serveScript)
		s.mux.HandleFunc("GET /v1/binaries/{os}/{arch}", s.serveProgram)
	}
	s.mux.HandleFunc("/", s.nothing)
}
