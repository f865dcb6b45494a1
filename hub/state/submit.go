package state

import "tugline.dev/tugline/shared/fleet"

var _ = register(func() Command { return new(SubmitJob) })

// SubmitJob puts a job in the queue. Its prompt and inputs are blobs that were
// durable before it was proposed.
type SubmitJob struct {
	ID     fleet.JobID  `json:"id"`
	Spec   fleet.Spec   `json:"spec"`
	Prompt fleet.Digest `json:"prompt,omitempty"`
	Title  string       `json:"title,omitempty"` // how people know it in a list; only where every node keeps it
}

func (*SubmitJob) kind() Kind { return 1 }

func (c *SubmitJob) apply(t *txn) Result {
	if t.job(c.ID) != nil {
		return refuse(fleet.Conflict, "there is a job %s already", c.ID)
	}
	if n := t.count("queued"); n >= MaxQueue {
		return refuse(fleet.QueueFull, "the queue holds %d jobs, its bound; try again later", n)
	}
	if n := t.count("queued:" + t.head.Actor); n >= MaxQueuePerUser {
		return refuse(fleet.QueueFull, "this token has %d queued jobs, its bound; try again later", n)
	}
	j := &fleet.Job{
		ID: c.ID, Seq: t.index, Spec: c.Spec, Title: fleet.CutText(c.Title, fleet.MaxTitle), Actor: t.head.Actor, CreatedAt: t.now(),
		Turns: []*fleet.Turn{{N: 1, Prompt: c.Prompt, Model: c.Spec.Model, CreatedAt: t.now()}},
	}
	t.queue(j, "queued", "waits for a runner")
	return t.put(j)
}
