package state

import "tugline.dev/tugline/shared/fleet"

// Commands come in generations: all that one release of the program added. A node
// tells the newest generation that it can decode, and nothing newer is proposed until
// every node can; a node that met one in its log would have to stop.

// generation gives the generation of a kind. Kinds are numbered by what they are
// about, so a greater number is not a newer one.
func generation(k Kind) uint16 {
	switch k {
	case 22, 23, 24, 25, 42, 43, 44, 45, 46, 47:
		return 2
	case 49, 50, 51, 52, 53, 54, 55, 56, 57, 58: // 48 is of the first
		return 5
	case 59, 60, 61, 62, 63, 64:
		return releasesGeneration
	case 65, 66, 67, 68:
		return provisionsGeneration
	case 75, 76, 77, 78:
		return browserGeneration
	}
	return 1
}

// sessionGeneration is that of jobs that go on with a session of a machine's own.
const sessionGeneration = releasesGeneration

// packGeneration is that of entries that hold several commands.
const packGeneration = 4

// Newest is the newest generation of commands that this version can decode.
func Newest() uint16 {
	n := uint16(sessionGeneration)
	for k := range kinds {
		n = max(n, generation(k))
	}
	return n
}

// Held says whether a command must wait because a node of the cluster cannot decode
// it yet, and names the node. A node that is alone, or that no record names yet, asks
// nobody but itself. Of a node that says anew what it can decode that counts already:
// else an upgraded one could not say so.
func Held(c Command, nodes []*fleet.HubNode) (node string, held bool) {
	g := generation(c.kind())
	switch c := c.(type) {
	case *UpdateNode:
		return behind(g, nodes, c)
	case *Set:
		if c.Name == fleet.SettingAutoProvision || c.Name == fleet.SettingProvisioning {
			g = provisionsGeneration
		}
	case *SubmitJob:
		switch {
		case c.Spec.Session != nil:
			g = sessionGeneration
		case ruled(&c.Spec):
			g = rulesGeneration
		}
	}
	return behind(g, nodes, nil)
}

// HeldPacks says the same of entries that hold several commands.
func HeldPacks(nodes []*fleet.HubNode) bool {
	_, held := behind(packGeneration, nodes, nil)
	return held
}

// behind names a node that does not know a generation, where another may be asked.
func behind(generation uint16, nodes []*fleet.HubNode, says *UpdateNode) (node string, held bool) {
	live := 0
	for _, n := range nodes {
		if n.Removed() {
			continue
		}
		kinds := n.Kinds
		if says != nil && says.Node.ID == n.ID {
			kinds = max(kinds, says.Node.Kinds)
		}
		if live++; kinds < generation && node == "" {
			node = n.ID
		}
	}
	if live < 2 {
		return "", false
	}
	return node, node != ""
}
