package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tugline.dev/tugline/shared/api"
)

// Beside starts one more runner of the mesh, with a directory, a home and an environment
// of its own, and waits until it is online. The test's end stops it.
func (m *Mesh) Beside(name, home, config string, vars ...string) *Process {
	m.T.Helper()
	dir := filepath.Join(m.Dir, "runner-"+name)
	file := m.Write(filepath.Join(dir, "runner.yaml"), fmt.Sprintf("slots: %d\nallow_file: true\n%s", m.Slots, config))
	if err := errors.Join(os.Chmod(file, 0o600), os.MkdirAll(home, 0o755)); err != nil {
		m.T.Fatal(err)
	}
	var k api.Ticket
	m.JSON(&k, append([]string{"hub", "ticket", "--json"}, m.Ticket...)...)
	own := *m
	own.Vars = append(append([]string{}, vars...), "HOME="+home)
	p := own.Launch("runner "+name, "runner", "run", "--data-dir", dir, "--name", name, "--slots", fmt.Sprint(m.Slots), "--ticket", k.Ticket)
	m.T.Cleanup(func() {
		p.Stop()
		if m.T.Failed() {
			m.T.Logf("--- runner %s said:\n%s", name, Tail(p.Said(), 8000))
		}
	})
	m.Eventually(20*time.Second, "the runner "+name+" is online", func() bool {
		var r api.Runner
		out, _, code := m.Try("runner", "get", name, "--json")
		return code == 0 && json.Unmarshal([]byte(out), &r) == nil && r.State == "online"
	})
	return p
}
