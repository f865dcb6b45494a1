package fleet

// WaitingOnProvider is what the detail of a running attempt begins with while its
// agent tries the model's provider again by itself; what follows says why.
const WaitingOnProvider = "waiting on provider"
