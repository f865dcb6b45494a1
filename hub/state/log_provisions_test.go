package state

import (
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// writeProvisionsLog makes a log of installations on runners, to each of their ends.
func writeProvisionsLog(t *testing.T) []byte {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "cluster", Epoch: 1})
	g.enrol("r1")
	g.do(&Set{Name: fleet.SettingAutoProvision, Value: "claude"})
	g.enrol("new")
	g.do(queue("p1", "codex", "CODEX_API_KEY"))
	g.repeated(queue("p2", "codex", "CODEX_API_KEY"))
	g.do(&DeliverProvision{Runner: "r1", ID: "p1"})
	g.do(&EndProvision{Runner: "r1", ID: "p1", Installed: "1.2.3"})
	g.do(queue("p2", "claude"))
	g.do(&EndProvision{Runner: "r1", ID: "p2", Class: fleet.ProvisionNoNPM, Detail: "npm is not there"})
	g.do(queue("p3", "opencode"))
	g.do(&CancelProvision{Runner: "r1", ID: "p3"})
	g.do(&Set{Name: fleet.SettingProvisioning, Value: fleet.ProvisioningSwitchOff})
	g.refused(fleet.Forbidden, queue("p4", "opencode"))
	return written(g)
}
