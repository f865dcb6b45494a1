// Package arch holds the shape of the tree: who may import whom, which packages
// stay pure, who owns a costly dependency, and what no file may contain. The table
// of imports that it enforces is the one that ARCHITECTURE.md shows.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "tugline.dev/tugline/"

// root is where this repository begins, seen from the tests.
var root = filepath.Join("..", "..")

// source is one Go file.
type source struct {
	pkg  string // directory below the root
	path string // below the root
	text string
	file *ast.File
	test bool
}

func parse(path, text string) (source, error) {
	f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
	return source{pkg: filepath.ToSlash(filepath.Dir(path)), path: path, text: text, file: f, test: strings.HasSuffix(path, "_test.go")}, err
}

// mustParse is for the tests of the rules themselves.
func mustParse(t *testing.T, path, text string) source {
	t.Helper()
	s, err := parse(path, text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// files walks every file of the repository that people write.
func files(t *testing.T, visit func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") && name != ".ci" || slices.Contains([]string{"bin", "node_modules", "dist"}, name)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		visit(filepath.ToSlash(rel), string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sources gives every Go file that is not test data.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	files(t, func(path, text string) {
		if !strings.HasSuffix(path, ".go") || strings.Contains(path, "/testdata/") {
			return
		}
		s, err := parse(path, text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	})
	if len(out) < 100 {
		t.Fatalf("only %d Go files were found below %s", len(out), root)
	}
	return out
}

func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}
