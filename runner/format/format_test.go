package format

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/runner/durable"
)

var quiet = slog.New(slog.DiscardHandler)

// words is a table whose steps append their format to a file, put another in a folder, and
// take one away.
func words(n int) (t Table) {
	for i := range n {
		to := fmt.Sprint(i + 2)
		t = append(t, Step{Files: []string{"words", "made-*", "jobs/*.json", "old"}, Do: func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, "words"))
			return errors.Join(err,
				os.WriteFile(filepath.Join(dir, "words"), append(b, to...), 0o600),
				os.WriteFile(filepath.Join(dir, "made-"+to), nil, 0o600),
				os.WriteFile(filepath.Join(dir, "jobs", "a.json"), []byte(to), 0o600),
				os.RemoveAll(filepath.Join(dir, "old")))
		}})
	}
	return t
}

// newDir gives a directory as the first version of the program left it.
func newDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, map[string]string{"journal.log": "j", "words": "1", "old": "x", "jobs/a.json": "1", "jobs/b.json": "1", "logs/runner.log": "l"})
	return dir
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// tree gives what is in a directory, but for the records of formats.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, p := range []string{"*", "*/*", "*/*/*"} {
		found, _ := filepath.Glob(filepath.Join(dir, p))
		for _, f := range found {
			if st, err := os.Stat(f); err == nil && st.Mode().IsRegular() && filepath.Base(f) != "format.json" {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				out[strings.TrimPrefix(f, dir+"/")] = string(b)
			}
		}
	}
	return out
}

func begin(t *testing.T, table Table, dir, version string) {
	t.Helper()
	if err := table.Begin(dir, version, quiet); err != nil {
		t.Fatal(err)
	}
}

func formatOf(t *testing.T, dir string) int {
	t.Helper()
	r, err := Table{}.load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r.Format
}

// A version that is not confirmed changes nothing, however often it starts, and the one
// before has the directory back. A confirmed one brings it to its format, and keeps what
// was there.
func TestAConfirmedVersionBringsItsFormat(t *testing.T) {
	dir := newDir(t)
	was := tree(t, dir)
	begin(t, words(0), dir, "1.0.0")
	for range 3 {
		begin(t, words(1), dir, "2.0.0")
	}
	begin(t, words(0), dir, "1.0.0")
	if got := tree(t, dir); !maps.Equal(got, was) || formatOf(t, dir) != 1 {
		t.Fatalf("before the confirmation the directory has format %d and\n%v", formatOf(t, dir), got)
	}
	if err := words(1).Confirm(dir, "2.0.0"); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dir); !maps.Equal(got, was) || formatOf(t, dir) != 1 {
		t.Errorf("jobs may be at work, and the directory has format %d and\n%v", formatOf(t, dir), got)
	}
	begin(t, words(0), dir, "1.0.0") // taken back by hand
	begin(t, words(1), dir, "2.0.1") // another one, which is not confirmed
	if got := tree(t, dir); !maps.Equal(got, was) || formatOf(t, dir) != 1 {
		t.Errorf("the directory has format %d and\n%v", formatOf(t, dir), got)
	}
	begin(t, words(1), dir, "2.0.0")
	want := map[string]string{
		"journal.log": "j", "logs/runner.log": "l", "words": "12", "made-2": "", "jobs/a.json": "2", "jobs/b.json": "1",
		"format-1/words": "1", "format-1/old": "x", "format-1/jobs/a.json": "1", "format-1/jobs/b.json": "1",
	}
	if got := tree(t, dir); !maps.Equal(got, want) || formatOf(t, dir) != 2 {
		t.Errorf("the directory has format %d and\n%v, want\n%v", formatOf(t, dir), got, want)
	}

	// The version before refuses it, and says where its own files are.
	var newer *durable.Newer
	for name, err := range map[string]error{"begin": words(0).Begin(dir, "1.0.0", quiet), "check": words(0).Check(dir), "confirm": words(0).Confirm(dir, "1.0.0")} {
		if !errors.As(err, &newer) || newer.Format != 2 || newer.Known != 1 || !strings.Contains(err.Error(), filepath.Join(dir, "format-1")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := tree(t, dir); !maps.Equal(got, want) {
		t.Errorf("whoever refuses it has changed it:\n%v", got)
	}
	// With them it goes on.
	for _, name := range []string{"format.json", "words", "old", "jobs/a.json"} {
		b, err := os.ReadFile(filepath.Join(dir, "format-1", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	begin(t, words(0), dir, "1.0.0")
	if got := tree(t, dir); got["words"] != "1" || got["old"] != "x" || formatOf(t, dir) != 1 {
		t.Errorf("put back by hand the directory has format %d and\n%v", formatOf(t, dir), got)
	}
}

// Several formats are gone through one after the other; of copies the last is kept. One that
// is more than two behind is refused.
func TestFormatsInBetween(t *testing.T) {
	dir := newDir(t)
	begin(t, words(0), dir, "1.0.0")
	if err := words(2).Confirm(dir, "3.0.0"); err != nil {
		t.Fatal(err)
	}
	begin(t, words(2), dir, "3.0.0")
	got := tree(t, dir)
	if got["words"] != "123" || got["format-2/words"] != "12" || got["format-1/words"] != "" || formatOf(t, dir) != 3 {
		t.Errorf("format %d:\n%v", formatOf(t, dir), got)
	}
	old := newDir(t)
	begin(t, words(2), old, "3.0.0") // it is read as it is
	var newer *durable.Newer
	if err := words(3).Begin(old, "4.0.0", quiet); err == nil || errors.As(err, &newer) || !strings.Contains(err.Error(), "from 2 on; start a version in between") {
		t.Errorf("three formats behind: %v", err)
	}
	fresh := filepath.Join(t.TempDir(), "new")
	begin(t, words(2), fresh, "3.0.0")
	if formatOf(t, fresh) != 3 {
		t.Errorf("a new directory has format %d", formatOf(t, fresh))
	}
}

// A change that fails leaves everything as it was, and whoever starts goes on with that.
func TestAChangeThatFails(t *testing.T) {
	dir := newDir(t)
	was := tree(t, dir)
	broken := words(1)
	do := broken[0].Do
	broken[0].Do = func(dir string) error { return errors.Join(do(dir), errors.New("no room")) }
	begin(t, broken, dir, "2.0.0")
	if err := broken.Confirm(dir, "2.0.0"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		begin(t, broken, dir, "2.0.0")
		if got := tree(t, dir); !maps.Equal(got, was) || formatOf(t, dir) != 1 {
			t.Fatalf("the directory has format %d and\n%v", formatOf(t, dir), got)
		}
	}
	begin(t, words(1), dir, "2.0.0")
	if formatOf(t, dir) != 2 {
		t.Errorf("the next try leaves format %d", formatOf(t, dir))
	}
}

// killed is what a step panics with in the place of a kill.
type killed struct{}

// A kill anywhere in a change leaves what the next start of either version takes up.
func TestAChangeThatIsCutOff(t *testing.T) {
	for cut, do := range map[string]func(dir string) error{
		"before it began": func(string) error { panic(killed{}) },
		"in between": func(dir string) error {
			put(t, dir, map[string]string{"words": "half", "made-2": "", "jobs/a.json": "2"})
			panic(killed{})
		},
		"with files away": func(dir string) error {
			os.Remove(filepath.Join(dir, "words"))
			os.Remove(filepath.Join(dir, "old"))
			panic(killed{})
		},
		"before the record": func(dir string) error { _ = words(1)[0].Do(dir); panic(killed{}) },
	} {
		for _, next := range []Table{words(0), words(1)} {
			dir := newDir(t)
			was := tree(t, dir)
			begin(t, words(1), dir, "2.0.0")
			if err := words(1).Confirm(dir, "2.0.0"); err != nil {
				t.Fatal(err)
			}
			func() {
				defer func() {
					if _, ok := recover().(killed); !ok {
						t.Fatalf("%s: it was not cut off", cut)
					}
				}()
				_ = Table{{Files: words(1)[0].Files, Do: do}}.Begin(dir, "2.0.0", quiet)
			}()
			version := fmt.Sprintf("%d.0.0", len(next)+1)
			begin(t, next, dir, version)
			got := tree(t, dir)
			if len(next) == 0 {
				maps.DeleteFunc(got, func(name, _ string) bool { return name == "made-2" }) // it does not know of it
				if !maps.Equal(got, was) || formatOf(t, dir) != 1 {
					t.Errorf("%s: the version before finds format %d and\n%v", cut, formatOf(t, dir), got)
				}
			} else if got["words"] != "12" || got["format-1/words"] != "1" || formatOf(t, dir) != 2 {
				t.Errorf("%s: the next start leaves format %d and\n%v", cut, formatOf(t, dir), got)
			}
		}
	}
}

func TestARecordThatIsDamaged(t *testing.T) {
	for _, text := range []string{"", "{", "{}", `{"format":0}`, `{"format":"2"}`} {
		dir := newDir(t)
		put(t, dir, map[string]string{"format.json": text})
		var newer *durable.Newer
		if err := words(1).Begin(dir, "2.0.0", quiet); err == nil || errors.As(err, &newer) || !strings.Contains(err.Error(), "format.json") {
			t.Errorf("%q: %v", text, err)
		}
	}
	dir := newDir(t)
	put(t, dir, map[string]string{"format.json": `{"format":1,"confirmed":"","of":"a newer program"}`})
	begin(t, words(1), dir, "2.0.0")
	if got := formatOf(t, dir); got != 1 {
		t.Errorf("with a field that is not known: format %d", got)
	}
}
