package runner

// unmapProgram has nothing to do: the system counts no clean pages of a file.
func unmapProgram() error { return nil }
