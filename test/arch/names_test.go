package arch

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
	"testing"
)

// testName is a test as documents name it.
var testName = regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z][A-Za-z0-9]*)`")

// untold gives the tests that a document names and that are not there.
func untold(text string, there map[string]bool) (bad []string) {
	for _, m := range testName.FindAllStringSubmatch(text, -1) {
		if !there[m[1]] {
			bad = append(bad, m[1])
		}
	}
	return bad
}

// TestDocumentsNameTestsThatAreThere reads every document: what it says that a test keeps
// is kept by one.
func TestDocumentsNameTestsThatAreThere(t *testing.T) {
	there := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && f.Recv == nil {
				there[f.Name.Name] = true
			}
		}
	}
	named := 0
	files(t, func(name, text string) {
		if path.Ext(name) != ".md" {
			return
		}
		named += len(testName.FindAllString(text, -1))
		for _, bad := range untold(text, there) {
			t.Errorf("%s names %s, and there is no such test", name, bad)
		}
	})
	if named < 50 {
		t.Errorf("documents name only %d tests", named)
	}
}

// TestNamesRule sees that the rule finds what it should.
func TestNamesRule(t *testing.T) {
	got := strings.Join(untold("`TestThere` and `TestGone`, `BenchmarkGone`; `Testing`, TestLoose", map[string]bool{"TestThere": true}), " ")
	if got != "TestGone BenchmarkGone" {
		t.Errorf("found %q", got)
	}
}
