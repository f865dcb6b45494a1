package state

import (
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// writePasskeysLog makes a log of passkeys and of sessions that began with one.
func writePasskeysLog(t *testing.T) []byte {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "cluster", Epoch: 1})
	ofPasskeys(g)
	return written(g)
}

// ofPasskeys applies every command about passkeys.
func ofPasskeys(g *rig) {
	g.token("p1", fleet.RoleAdmin)
	g.token("p2", fleet.RoleOperator)
	g.do(passkey("k1", "p1"))
	g.do(passkey("k2", "p2"))
	g.do(passkey("k3", "p1"))
	g.do(byPasskey("p1-1", "p1", "k1", 7))
	g.refused(fleet.Unauthorised, byPasskey("p1-2", "p1", "k1", 7))
	g.do(byPasskey("p2-1", "p2", "k2", 0))
	g.do(&RemovePasskey{ID: "k3", Token: "p1"})
	g.do(&RevokeToken{ID: "p2"})
}
