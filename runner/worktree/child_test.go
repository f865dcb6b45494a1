package worktree

func child(dir string) int { return 0 }
