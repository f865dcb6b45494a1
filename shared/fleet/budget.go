package fleet

import "time"

// Budget bounds what one origin may spend in a window of time. Zero is no bound.
type Budget struct {
	Origin string        `json:"origin"` // "manual", "automation", or an automation's name as "automation:NAME"
	Runs   int64         `json:"max_runs,omitempty"`
	Tokens int64         `json:"max_tokens,omitempty"`
	Wall   time.Duration `json:"max_wall_ns,omitempty"`
	Window time.Duration `json:"window_ns"` // a bound is for so long, begun by the first run in it; 0: for ever
	SetBy  string        `json:"set_by,omitempty"`
	SetAt  time.Time     `json:"set_at"`
	Begun  time.Time     `json:"begun,omitzero"`  // of the present window
	Spent  Spending      `json:"spent"`           // by attempts that have ended
	Before Spending      `json:"before,omitzero"` // in the last window in which one ended; what a run takes on average is known by it
	Held   []Reservation `json:"held,omitempty"`  // by attempts that have not
}

// Spending is what attempts used.
type Spending struct {
	Runs   int64         `json:"runs"`
	Tokens int64         `json:"tokens"`
	Wall   time.Duration `json:"wall_ns"`
}

// Reservation is the most that an attempt under way may use.
type Reservation struct {
	Job    JobID         `json:"job"`
	Fence  Fence         `json:"fence"`
	Tokens int64         `json:"tokens,omitempty"`
	Wall   time.Duration `json:"wall_ns,omitempty"`
}

// OriginKey gives the budget that an origin draws on first; its kind's is the other.
func (o Origin) OriginKey() string {
	kind := o.Kind
	if kind == "" {
		kind = Manual
	}
	if o.Name == "" {
		return kind
	}
	return kind + ":" + o.Name
}
