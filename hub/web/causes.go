package web

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/oklog/ulid/v2"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// A failure that is nobody's business is told under a reference, which an admin can
// ask about. What it stands for is in the node's memory, for a while, and in its log.
const (
	maxCauses = 256     // of each kind that a node remembers
	maxCause  = 4 << 10 // bytes of one
	causeName = "urn:tugline:"
)

// causes are failures that a node told under a reference. The hub's own faults and what
// passes by itself are kept apart: an hour without a leader drives no fault out.
type causes struct {
	mu             sync.Mutex
	faults, passes []api.Cause // oldest first
}

// note remembers a failure, and gives its reference: it names the node that knows.
func (c *causes) note(node string, code fleet.Code, err error) string {
	ref := node + "/" + strings.ToLower(ulid.Make().String())
	one := api.Cause{Ref: ref, At: now().UTC(), Node: node, Code: code, Cause: fleet.CutText(strings.ToValidUTF8(err.Error(), "?"), maxCause)}
	c.mu.Lock()
	defer c.mu.Unlock()
	list := &c.passes
	if code == fleet.Internal {
		list = &c.faults
	}
	if len(*list) >= maxCauses {
		*list = append((*list)[:0], (*list)[1:]...)
	}
	*list = append(*list, one)
	return causeName + ref
}

func (c *causes) find(ref string) (api.Cause, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range [][]api.Cause{c.faults, c.passes} {
		for _, one := range list {
			if one.Ref == ref {
				return one, true
			}
		}
	}
	return api.Cause{}, false
}

func (s *Server) causeRoutes() {
	o := op(http.MethodGet, "/v1/errors/{node}/{id}", "get-error", "What a failure was that was told under a reference", fleet.RoleAdmin)
	o.Description = "The instance of a problem document is urn:tugline:NODE/ID. " + o.Description
	huma.Register(s.api, o, wrap(s, func(_ context.Context, in *struct {
		Node string `path:"node" doc:"the hub node that told it"`
		ID   string `path:"id"`
	}) (*causeOut, error) {
		if one, ok := s.causes.find(in.Node + "/" + in.ID); ok {
			return &causeOut{Body: one}, nil
		}
		if in.Node != s.cfg.Node {
			return nil, wrong(fleet.NotFound, "what %s told is in that node's memory alone; ask it (this one is %s)", quote(in.Node), s.cfg.Node)
		}
		return nil, wrong(fleet.NotFound, "this node remembers the last %d failures since %s, and no %s; its log may still have it", maxCauses, s.began.UTC().Format(time.RFC3339), quote(in.ID))
	}))
}

type causeOut struct{ Body api.Cause }
