package harness

// DriveRequest says what Drive is to do. Nothing in it is secret: it travels in an argv.
type DriveRequest struct {
	Program    string // of opencode, absolute
	Dir        string // working directory, absolute
	Model      string // PROVIDER/MODEL, "" for opencode's own choice
	Session    string // to take up, "" for a new one
	ApproveAll bool   // answer opencode's questions for permission with yes
}

// Args gives the words after the name of the tugline binary that lead to Drive.
func (d DriveRequest) Args() []string {
	args := []string{"drive", "opencode", "--program", d.Program, "--dir", d.Dir}
	if d.Model != "" {
		args = append(args, "--model", d.Model)
	}
	if d.Session != "" {
		args = append(args, "--session", d.Session)
	}
	if d.ApproveAll {
		args = append(args, "--approve-all")
	}
	return args
}
