package process

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// From the call of Spawn to the exit record of /bin/true, the end of the supervisor included.
func BenchmarkSpawnToExit(b *testing.B) {
	root := b.TempDir()
	for i := 0; b.Loop(); i++ {
		dir := filepath.Join(root, fmt.Sprint(i))
		spawned(b, dir, launchOf(fmt.Sprintf("bench-%d-%d", os.Getpid(), i), "/bin/true"))
		if st, err := Wait(b.Context(), dir); err != nil || st.State != Exited || st.Exit.Code != 0 {
			b.Fatalf("got %+v, %v", st, err)
		}
	}
}

// What the machine needs to start and end the same program without us.
func BenchmarkRunTrue(b *testing.B) {
	for b.Loop() {
		if _, err := Run(b.Context(), Cmd{Argv: []string{"/bin/true"}}); err != nil {
			b.Fatal(err)
		}
	}
}
