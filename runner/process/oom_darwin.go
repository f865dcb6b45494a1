package process

// jobsGoFirst does nothing: macOS has no such choice.
func jobsGoFirst() (undo func() error) { return func() error { return nil } }
