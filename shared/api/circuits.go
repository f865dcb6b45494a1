package api

import "tugline.dev/tugline/shared/fleet"

// Circuit is a circuit as the interface shows it: its state is that of now, half_open
// where its time has passed.
type Circuit struct {
	fleet.Circuit
	Key        string `json:"key" doc:"a short name of the id, that does as well"`
	RunnerName string `json:"runner_name,omitempty"`
	ActorName  string `json:"actor_name,omitempty" doc:"of the actor's token, where it has one"`
	Over       string `json:"over" doc:"what it is over, in words"`
}

// Circuits is GET /v1/circuits.
type Circuits struct {
	Circuits []Circuit `json:"circuits"`
}

// ResetCircuit is the body of POST /v1/circuits/{id}/reset.
type ResetCircuit struct {
	Reason     string  `json:"reason,omitempty" doc:"at most 200 characters"`
	Repaired   string  `json:"repaired,omitempty" doc:"what was repaired, at most 200 characters; a blocked circuit asks for it"`
	Generation *uint64 `json:"recovery_generation,omitempty" doc:"that of the circuit as it was looked at: one that was repaired since is left as it is"`
}

// OpenCircuit is the body of POST /v1/circuits/open.
type OpenCircuit struct {
	Scope    fleet.Scope `json:"scope" doc:"provider: one provider; model: one model of a provider; host: one runner"`
	Runner   string      `json:"runner,omitempty" doc:"id or name: only there; host needs it"`
	Provider string      `json:"provider,omitempty" doc:"such as openai or anthropic; for provider and model"`
	Model    string      `json:"model,omitempty" doc:"for model"`
	For      string      `json:"for,omitempty" doc:"1m to 720h; absent: until somebody resets it"`
	Reason   string      `json:"reason" doc:"what it is for, at most 200 characters"`
}
