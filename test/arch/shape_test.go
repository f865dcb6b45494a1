package arch

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const maxLines = 600

// pure packages decide. They see no clock, disk, network or chance, and start nothing.
var pure = []string{"shared/fleet", "hub/circuit", "hub/retry", "hub/state", "hub/sched", "hub/rollout", "hub/gate"}

// harmless is what a pure package may use of the standard library, and the one
// in-memory database. sync/atomic lets readers see a state that is replaced whole.
var harmless = strings.Fields(`bufio bytes cmp encoding/base64 encoding/binary encoding/hex encoding/json errors fmt
	hash/crc32 io iter maps math math/bits path regexp slices sort strconv strings sync/atomic time unicode unicode/utf8
	crypto/sha256 github.com/hashicorp/go-memdb`)

// clocks are the parts of package time that ask what time it is, or wait.
var clocks = strings.Fields("Now Since Until After AfterFunc NewTimer NewTicker Tick Sleep")

// pureness says what a file of a pure package does that it must not.
func pureness(s source) (bad []string) {
	if s.test || !slices.Contains(pure, s.pkg) {
		return nil
	}
	say := func(format string, args ...any) {
		bad = append(bad, fmt.Sprintf("%s: a pure package %s", s.path, fmt.Sprintf(format, args...)))
	}
	for _, im := range s.file.Imports {
		p, err := strconv.Unquote(im.Path.Value)
		if err != nil || !slices.Contains(harmless, p) && !strings.HasPrefix(p, module) {
			say("imports %s", im.Path.Value)
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			say("starts a goroutine")
		case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
			say("uses a channel")
		case *ast.SelectorExpr:
			if isName(n.X, "time") && slices.Contains(clocks, n.Sel.Name) {
				say("calls time.%s", n.Sel.Name)
			}
			if isName(n.X, "time") && n.Sel.Name == "Local" {
				say("uses the machine's time zone")
			}
		}
		return true
	})
	return bad
}

func isName(x ast.Expr, names ...string) bool {
	id, ok := x.(*ast.Ident)
	return ok && slices.Contains(names, id.Name)
}

// aloneness says what a test of a pure package does that would need the race detector: `make race` leaves these out.
func aloneness(s source) (bad []string) {
	if !s.test || !slices.Contains(pure, s.pkg) {
		return nil
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		_, starts := n.(*ast.GoStmt)
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" || starts {
			bad = append(bad, fmt.Sprintf("%s: starts a goroutine, in a package whose tests are not raced", s.path))
		}
		return true
	})
	return bad
}

// TestPureIsNotRaced: what `make race` leaves out are the pure packages and no others.
func TestPureIsNotRaced(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "\nPURE = " + strings.Join(pure, " ") + "\n"; !strings.Contains(string(b), want) {
		t.Errorf("the Makefile's list of pure packages is not %q", want)
	}
}

// habits says what a test does that no test here does: it sleeps where time is real,
// or it leaves itself out.
func habits(s source) (bad []string) {
	if !s.test {
		return nil
	}
	bubbles := slices.ContainsFunc(s.file.Imports, func(im *ast.ImportSpec) bool { return im.Path.Value == `"testing/synctest"` })
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if isName(sel.X, "time") && sel.Sel.Name == "Sleep" && !bubbles {
			bad = append(bad, fmt.Sprintf("%s: time.Sleep outside a synctest bubble; wait for the thing itself, with a deadline", s.path))
		}
		if isName(sel.X, "t", "b", "f", "tb") && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
			bad = append(bad, fmt.Sprintf("%s: a test that is skipped proves nothing; use a build tag, or make what it needs", s.path))
		}
		return true
	})
	return bad
}

func length(s source) []string {
	if n := strings.Count(s.text, "\n"); n > maxLines {
		return []string{fmt.Sprintf("%s: %d lines, at most %d", s.path, n, maxLines)}
	}
	return nil
}

// comments says which packages do not have exactly one package comment. A package
// of tests alone carries it in one of them.
func comments(all []source) (bad []string) {
	type count struct{ files, comments int }
	code, tests := map[string]count{}, map[string]count{}
	for _, s := range all {
		m := code
		if s.test {
			m = tests
		}
		c := m[s.pkg]
		c.files++
		if s.file.Doc != nil {
			c.comments++
		}
		m[s.pkg] = c
	}
	for pkg, c := range tests {
		if n, ok := code[pkg]; !ok {
			code[pkg] = c
		} else if c.comments > 0 {
			n.comments += c.comments
			code[pkg] = n
		}
	}
	for pkg, c := range code {
		if c.comments != 1 {
			bad = append(bad, fmt.Sprintf("package %s has %d package comments in %d files, want 1", pkg, c.comments, c.files))
		}
	}
	slices.Sort(bad)
	return bad
}

// TestShape holds every file against the rules above.
func TestShape(t *testing.T) {
	all := sources(t)
	for _, s := range all {
		report(t, pureness(s))
		report(t, aloneness(s))
		report(t, habits(s))
		report(t, length(s))
	}
	report(t, comments(all))
}

// TestShapeRules sees that each rule finds what it should.
func TestShapeRules(t *testing.T) {
	for _, c := range []struct {
		rule       func(source) []string
		path, text string
		want       int
	}{
		{pureness, "hub/state/x.go", "package state\nimport \"time\"\nvar x = time.Now", 1},
		{pureness, "hub/state/x.go", "package state\nimport \"time\"\nvar x = time.Second", 0},
		{pureness, "hub/state/x.go", "package state\nimport \"os\"", 1},
		{pureness, "hub/state/x.go", "package state\nimport \"math/rand/v2\"", 1},
		{pureness, "hub/state/x.go", "package state\nfunc f() { go f() }", 1},
		{pureness, "hub/state/x.go", "package state\nvar c chan int", 1},
		{pureness, "hub/state/x_test.go", "package state\nimport \"os\"", 0},
		{pureness, "hub/x.go", "package hub\nimport \"os\"", 0},
		{aloneness, "hub/state/x_test.go", "package state\nfunc f() { go f(); wg.Go(f) }", 2},
		{aloneness, "hub/x_test.go", "package hub\nfunc f() { go f() }", 0},
		{habits, "hub/x_test.go", "package hub\nimport \"time\"\nfunc f() { time.Sleep(1) }", 1},
		{habits, "hub/x_test.go", "package hub\nimport \"time\"\nimport \"testing/synctest\"\nfunc f() { time.Sleep(1) }", 0},
		{habits, "hub/x_test.go", "package hub\nfunc f() { t.Skip(1); b.SkipNow(); tb.Skipf(``) }", 3},
		{habits, "hub/x_test.go", "package hub\nfunc f() { scanner.Skip() }", 0},
		{habits, "hub/x.go", "package hub\nimport \"time\"\nfunc f() { time.Sleep(1) }", 0},
		{length, "hub/x.go", "package hub\n" + strings.Repeat("\n", maxLines-1), 0},
		{length, "hub/x.go", "package hub\n" + strings.Repeat("\n", maxLines), 1},
	} {
		if got := c.rule(mustParse(t, c.path, c.text)); len(got) != c.want {
			t.Errorf("%s %q: %d problems %q, want %d", c.path, c.text, len(got), got, c.want)
		}
	}
	with, without := "// Package x is.\npackage x", "package x"
	for _, c := range []struct {
		files map[string]string
		want  int
	}{
		{map[string]string{"x/a.go": with, "x/b.go": without, "x/a_test.go": without}, 0},
		{map[string]string{"x/a.go": without}, 1},
		{map[string]string{"x/a.go": with, "x/b.go": with}, 1},
		{map[string]string{"x/a.go": with, "x/a_test.go": with}, 1},
		{map[string]string{"x/a_test.go": with, "x/b_test.go": without}, 0},
		{map[string]string{"x/a_test.go": without}, 1},
	} {
		var all []source
		for path, text := range c.files {
			all = append(all, mustParse(t, path, text))
		}
		if got := comments(all); len(got) != c.want {
			t.Errorf("%v: %q, want %d problems", c.files, got, c.want)
		}
	}
}
