package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"tugline.dev/tugline/shared/api"
)

// keyMesh is what the keys of the nodes' tunnel are called; there is one to each node.
const keyMesh = "mesh"

// rekeyTime bounds the wait for one node to replace its key.
const rekeyTime = time.Minute

// rotateMesh replaces the keys of the nodes that are named, else of all, one at a time.
func (a *app) rotateMesh(ctx context.Context, nodes []string) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.close()
	if len(nodes) == 0 {
		var m api.Members
		if _, err := c.read(ctx, "/v1/members", nil, &m); err != nil {
			return err
		}
		for _, n := range m.Members {
			if n.RemovedAt == nil {
				nodes = append(nodes, n.ID)
			}
		}
	}
	done := []string{}
	for _, id := range nodes {
		r := request{method: http.MethodPost, path: "/v1/members/" + url.PathEscape(id) + "/rotate", once: true, patience: actPatience, timeout: rekeyTime}
		if _, _, err := c.call(ctx, r); err != nil {
			return err
		}
		done = append(done, id)
		if !a.json {
			fmt.Fprintf(a.out, "node %s has a new key for the tunnel\n", id)
		}
	}
	if a.json {
		return a.printJSON(map[string]any{"rotated": done})
	}
	a.say("Tickets for hub nodes that were made before may not work any more; make new ones with `tugline hub ticket --role hub`.")
	return nil
}
