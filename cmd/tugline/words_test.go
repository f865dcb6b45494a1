package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	inText  = regexp.MustCompile("`([^`]+)`")
	inBlock = regexp.MustCompile(`^\s*(?:[A-Z_]+=\S+ )*(tugline .*)$`)
	isFlag  = regexp.MustCompile(`^--[a-z][a-z-]*$`)
)

// commandsOf gives the command lines of the program that a document in Markdown shows:
// lines of blocks, and words in the text.
func commandsOf(doc string) (out []string) {
	block := false
	var text strings.Builder
	for line := range strings.Lines(doc) {
		switch {
		case strings.HasPrefix(line, "```"):
			block = !block
		case block:
			if m := inBlock.FindStringSubmatch(line); m != nil {
				out = append(out, strings.TrimSpace(m[1]))
			}
		default:
			text.WriteString(line)
		}
	}
	for _, m := range inText.FindAllStringSubmatch(text.String(), -1) {
		l := strings.Join(strings.Fields(m[1]), " ")
		if strings.HasSuffix(l, " v1") {
			continue // what a key is derived for
		}
		if strings.HasPrefix(l, "tugline ") || strings.HasPrefix(l, "hub ") || strings.HasPrefix(l, "job ") || strings.HasPrefix(l, "runner ") {
			out = append(out, "tugline "+strings.TrimPrefix(l, "tugline "))
		}
	}
	return out
}

// unknownWords gives what a shown command line has that the program has not.
func unknownWords(root *cobra.Command, line string) (bad []string) {
	line, _, _ = strings.Cut(line, " #")
	words := strings.Fields(line)[1:]
	if i := slices.Index(words, "--"); i >= 0 {
		words = words[:i]
	}
	for i, alternatives := range words {
		if strings.HasPrefix(alternatives, "-") || strings.HasPrefix(alternatives, `"`) || strings.ContainsAny(alternatives, "…[") || alternatives == strings.ToUpper(alternatives) {
			break // what a command takes, and no command
		}
		for _, w := range strings.Split(strings.TrimRight(alternatives, ",;:"), "|") {
			if c, rest, _ := root.Find(append(slices.Clone(words[:i]), w)); len(rest) > 0 && c.HasSubCommands() {
				bad = append(bad, w)
			}
		}
		words[i], _, _ = strings.Cut(alternatives, "|")
	}
	c, _, err := root.Find(words)
	if err != nil {
		return append(bad, err.Error())
	}
	for _, w := range words {
		name, _, _ := strings.Cut(strings.Trim(w, "[],;"), "=")
		if isFlag.MatchString(name) && c.Flag(name[2:]) == nil {
			bad = append(bad, name)
		}
	}
	return bad
}

// Every command and flag that the documents show is there.
func TestDocumentsShowWhatIsThere(t *testing.T) {
	shown := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n := d.Name(); d.IsDir() && (n == "node_modules" || n == "testdata" || n == "bin" || n == ".git") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, line := range commandsOf(string(b)) {
			shown++
			if bad := unknownWords(newShell(t, "").root(), line); len(bad) > 0 {
				t.Errorf("%s shows %q; there is no %q", path, line, bad)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if shown < 60 {
		t.Errorf("only %d commands were found in the documents", shown)
	}
	for line, want := range map[string]int{
		"tugline job list": 0, "tugline job lust": 1, "tugline token create|list|revoke": 0, "tugline token create|lost": 1,
		"tugline exec --repo . -- make --nope": 0, "tugline exec --rope . -- true": 1, "tugline run --repo . # --nope": 0,
	} {
		if got := unknownWords(newShell(t, "").root(), line); len(got) != want {
			t.Errorf("%q: %q, want %d", line, got, want)
		}
	}
}
