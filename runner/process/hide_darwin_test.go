package process

func hideCgroups() {}
