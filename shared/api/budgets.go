package api

import "time"

// Budget bounds what one origin of jobs may spend.
type Budget struct {
	Origin    string     `json:"origin"` // manual, automation, or automation:NAME
	MaxRuns   int64      `json:"max_runs,omitempty"`
	MaxTokens int64      `json:"max_tokens,omitempty"`
	MaxWall   string     `json:"max_wall,omitempty"`
	Window    string     `json:"window,omitempty"` // absent: for ever
	SetBy     string     `json:"set_by"`
	SetAt     time.Time  `json:"set_at"`
	Begun     *time.Time `json:"begun"` // of the present window; null: nothing has run in it
	Ends      *time.Time `json:"ends"`
	Spent     Spending   `json:"spent"` // by attempts that ended
	Held      Spending   `json:"held"`  // the most that attempts under way may spend
}

// Spending is what attempts use.
type Spending struct {
	Runs   int64  `json:"runs"`
	Tokens int64  `json:"tokens"`
	Wall   string `json:"wall"`
}

// Budgets is GET /v1/budgets.
type Budgets struct {
	Budgets []Budget `json:"budgets"`
}

// SetBudget is the body of PUT /v1/budgets/{origin}. At least one bound is set.
type SetBudget struct {
	MaxRuns   int64  `json:"max_runs,omitempty" doc:"attempts that begin"`
	MaxTokens int64  `json:"max_tokens,omitempty" doc:"that the agents' runs use"`
	MaxWall   string `json:"max_wall,omitempty" doc:"time that runs take together, 1m to 87600h"`
	Window    string `json:"window,omitempty" doc:"1m to 8760h, begun by the first run in it; absent: for ever"`
}
