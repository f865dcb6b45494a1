package state

import (
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// writeBrowsersLog makes a log of browsers' sessions.
func writeBrowsersLog(t *testing.T) []byte {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "cluster", Epoch: 1})
	ofBrowsers(g)
	return written(g)
}

// ofBrowsers applies every command about browsers' sessions.
func ofBrowsers(g *rig) {
	g.token("b1", fleet.RoleAdmin)
	g.token("b2", fleet.RoleOperator)
	g.do(signIn("s1", "b1"))
	g.do(signIn("s2", "b2"))
	g.do(signIn("s3", "b2"))
	g.do(signIn("s4", "b1"))
	g.refused(fleet.Conflict, signIn("s4", "b1"))
	g.do(&SignOut{ID: "s4"})
	g.refused(fleet.NotFound, &SignOut{ID: "s4"})
	g.do(&RevokeToken{ID: "b2"})
	g.refused(fleet.Unauthorised, signIn("s5", "b2"))
}
