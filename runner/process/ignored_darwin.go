package process

// dropIgnored does nothing here: without the C library there is no way to set a signal
// back. Those that the supervisor catches are back at their default in a job anyway; the
// stop signals of a terminal stay ignored where whatever started the runner ignored them.
func dropIgnored() {}
