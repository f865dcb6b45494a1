//go:build harness

package harness_test

import (
	"testing"

	"tugline.dev/tugline/test/mesh"
)

func TestMain(m *testing.M) { mesh.Main(m) }
