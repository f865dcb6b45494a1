package process

import "testing"

func TestOwnCgroup(t *testing.T) {
	const (
		v1     = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
		hybrid = v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
		pure   = "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		bound  = "29 22 0:26 /system.slice/box /cg rw - cgroup2 cgroup2 rw\n"
		spaced = `29 22 0:26 / /mnt/my\040cgroups rw - cgroup2 none rw` + "\n"
	)
	for name, c := range map[string]struct{ mounts, own, want string }{
		"pure":            {pure, "0::/user.slice/a.service\n", "/sys/fs/cgroup/user.slice/a.service"},
		"pure, root":      {pure, "0::/\n", "/sys/fs/cgroup"},
		"hybrid":          {hybrid, "9:name=systemd:/x\n1:cpu:/y\n0::/z\n", "/sys/fs/cgroup/unified/z"},
		"version 1 only":  {v1, "1:cpu:/y\n", ""},
		"not mounted":     {v1, "0::/z\n", ""},
		"bound subtree":   {bound, "0::/system.slice/box/inner\n", "/cg/inner"},
		"outside of it":   {bound, "0::/system.slice/boxer\n", ""},
		"above namespace": {pure, "0::/../other\n", ""},
		"space in path":   {spaced, "0::/a\n", "/mnt/my cgroups/a"},
		"garbage":         {"- -\ncgroup2\n1 2 3 - cgroup2\n", "0::/a", ""},
	} {
		if got := ownCgroup(c.mounts, c.own); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
