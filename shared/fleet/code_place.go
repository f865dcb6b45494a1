package fleet

// Why a runner does not take a job.
const (
	OtherRunner    Code = "other_runner"   // another one was asked for, or holds the session
	LabelMissing   Code = "label_missing"  // lacks a required label
	WrongSystem    Code = "wrong_system"   // another operating system or architecture
	HarnessOld     Code = "harness_old"    // its version is below the one required
	ModelMissing   Code = "model_missing"  // its owner lists the harness's models, and the one asked for is not among them
	AutomationOff  Code = "automation_off" // no automation slots here
	Offline        Code = "offline"        // not connected
	Cordoned       Code = "cordoned"       // a person holds it
	CircuitRefuses Code = "circuit_open"   // a circuit is open or blocked
	HealthUnknown  Code = "health_unknown" // no fresh sample
	StorageTight   Code = "storage_tight"  // room enough for other jobs, and not for what this one may take
	MemoryLow      Code = "memory_low"     // too little memory
	MemoryTight    Code = "memory_tight"   // memory enough for other jobs, and not for what this one requires
	DockerMissing  Code = "docker_missing" // Docker and Compose are not verified
	BudgetSpent    Code = "budget_spent"   // the origin's budget has no room
	RetryWaits     Code = "retry_waits"    // the pause before a retry
	KeyHeld        Code = "key_held"       // another job holds the concurrency key
)
