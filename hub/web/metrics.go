package web

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tugline.dev/tugline/hub/circuit"
	"tugline.dev/tugline/shared/fleet"
)

// metrics are read from the state when asked for; only what no state remembers is counted.
type metrics struct {
	registry  *prometheus.Registry
	submitted prometheus.Counter
	streams   prometheus.Gauge
}

func newMetrics(c Config) *metrics {
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		submitted: prometheus.NewCounter(prometheus.CounterOpts{Name: "tugline_jobs_submitted_total", Help: "Jobs submitted through this node."}),
		streams:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "tugline_event_streams", Help: "Open event streams."}),
	}
	gauge := func(name, help string, f func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
	gauge("tugline_jobs", "Job records.", func() float64 { return float64(c.Log.View().Count("jobs")) })
	gauge("tugline_jobs_queued", "Jobs that wait.", func() float64 { return float64(c.Log.View().Count("queued")) })
	gauge("tugline_runners", "Enrolled runners.", func() float64 { return float64(len(c.Log.View().Runners())) })
	gauge("tugline_runners_connected", "Connected runners.", func() float64 {
		n := 0
		for _, p := range c.Presence() {
			if p.Connected {
				n++
			}
		}
		return float64(n)
	})
	gauge("tugline_slots_used", "Occupied slots.", func() float64 {
		v, n := c.Log.View(), 0
		for _, r := range v.Runners() {
			n += v.Held(r.ID)
		}
		return float64(n)
	})
	gauge("tugline_slots_offered", "Slots that connected runners offer, those for automation included.", func() float64 {
		v, n := c.Log.View(), 0
		for _, p := range c.Presence() {
			if r, ok := v.Runner(p.Runner); ok && p.Connected {
				sl := slotsOf(r, p)
				n += sl.Offered + sl.Effective
			}
		}
		return float64(n)
	})
	gauge("tugline_circuits_open", "Circuits that are not closed.", func() float64 {
		v, n := c.Log.View(), 0
		for _, k := range v.Circuits() {
			if circuit.At(k, now()) != fleet.CircuitClosed {
				n++
			}
		}
		return float64(n)
	})
	gauge("tugline_applied_index", "Index of the last applied entry.", func() float64 { return float64(c.Log.View().Meta().Index) })
	gauge("tugline_spool_bytes", "Recorded output on disk.", func() float64 { b, _ := c.Spool.Usage(); return float64(b) })
	gauge("tugline_blob_bytes", "Blobs on disk.", func() float64 { b, _ := c.Blobs.Usage(); return float64(b) })
	m.registry.MustRegister(m.submitted, m.streams, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, s := range []fleet.State{fleet.Running, fleet.Verifying} {
		gauge("tugline_jobs_"+string(s), "Jobs that are "+string(s)+".", func() float64 {
			seen := map[fleet.JobID]bool{}
			for _, r := range c.Log.View().Runners() {
				for _, o := range c.Log.View().OpenOf(r.ID) {
					if o.Job.State == s {
						seen[o.Job.ID] = true
					}
				}
			}
			return float64(len(seen))
		})
	}
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
