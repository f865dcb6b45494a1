// Package e2e drives the real binary: hubs, runners, git and processes, with kill -9
// where something must survive it. Nothing in it is a fake but the lines that are cut.
package e2e

import (
	"testing"

	"tugline.dev/tugline/test/mesh"
)

func TestMain(m *testing.M) { mesh.Main(m) }
