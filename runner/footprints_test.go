package runner

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestFootprintsAreLearned(t *testing.T) {
	dir := t.TempDir()
	open := func() *footprints {
		f, err := openFootprints(dir)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f, at := open(), time.Unix(1e9, 0)
	learn := func(name string, bytes int64) {
		t.Helper()
		at = at.Add(time.Minute)
		if err := f.learn(name, bytes, at); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.of("a"); n != 0 {
		t.Errorf("of nothing learned: %d", n)
	}
	learn("a", 500)
	learn("a", 300)
	learn("b", 7)
	learn("b", 0)
	learn("", 9)
	if a, b := open().of("a"), open().of("b"); a != 500 || b != 7 {
		t.Errorf("after a restart %d and %d, want the most of each, 500 and 7", a, b)
	}
	for range footprintsKept {
		learn("a", 200)
	}
	if n := open().of("a"); n != 200 {
		t.Errorf("one large job of long ago still counts: %d", n)
	}
	for i := range maxFootprints {
		f.mu.Lock()
		f.repos[fmt.Sprint("r", i)] = footprint{Recent: []int64{1}, At: at.Add(time.Hour)}
		f.mu.Unlock()
	}
	learn("new", 5)
	if f = open(); len(f.repos) != maxFootprints || f.of("a") != 0 || f.of("b") != 0 {
		t.Errorf("%d are kept, the oldest are %d and %d", len(f.repos), f.of("a"), f.of("b"))
	}
	for _, ruin := range []string{"", "{", `{"version":2}`, `{"version":1,"repos":{"a":{"recent":[-1,0]}}}`} {
		if err := os.WriteFile(f.path, []byte(ruin), 0o600); err != nil {
			t.Fatal(err)
		}
		g, err := openFootprints(dir)
		if g == nil || g.of("a") != 0 {
			t.Errorf("%q: %v, %v", ruin, g, err)
		}
		if err := g.learn("a", 5, at); err != nil || open().of("a") != 5 {
			t.Errorf("%q: it does not learn anew: %v", ruin, err)
		}
	}
}
