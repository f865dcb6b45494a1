package circuit

import "tugline.dev/tugline/shared/fleet"

// Lease gives a half-open circuit to the one attempt that tries it.
func Lease(c *fleet.Circuit, job fleet.JobID, m Moment) *fleet.Circuit {
	d := clone(c)
	d.Probe, d.ChangedAt = &fleet.CircuitProbe{Job: job, Fence: m.Fence, At: m.Now}, m.Now
	return d
}

// Release takes a lease back without a verdict; nil where the attempt has none.
func Release(c *fleet.Circuit, f fleet.Fence, m Moment) *fleet.Circuit {
	if c == nil || c.Probe == nil || c.Probe.Fence != f {
		return nil
	}
	d := clone(c)
	d.Probe, d.ChangedAt = nil, m.Now
	return d
}
