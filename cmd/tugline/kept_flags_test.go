package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func hubFlagSet() (*pflag.FlagSet, *struct {
	listen, ticket string
	proxies        []string
	plain          bool
}) {
	v := &struct {
		listen, ticket string
		proxies        []string
		plain          bool
	}{}
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.StringVar(&v.listen, "listen", "", "")
	f.StringVar(&v.ticket, "ticket", "", "")
	f.StringArrayVar(&v.proxies, "trusted-proxy", nil, "")
	f.BoolVar(&v.plain, "plain-http", false, "")
	return f, v
}

func TestFlagsAreRecalled(t *testing.T) {
	dir := t.TempDir()
	f, _ := hubFlagSet()
	if err := f.Parse([]string{"--listen", "127.0.0.1:1", "--ticket", "secret", "--trusted-proxy", "10.0.0.0/8", "--trusted-proxy", "a,b", "--plain-http"}); err != nil {
		t.Fatal(err)
	}
	if err := keepFlags(f, dir); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, keptFlagsFile)); err != nil || strings.Contains(string(b), "secret") {
		t.Fatalf("%s %v", b, err)
	}
	again, v := hubFlagSet()
	if err := again.Parse([]string{"--listen", "127.0.0.1:2"}); err != nil {
		t.Fatal(err)
	}
	if err := recallFlags(again, dir); err != nil {
		t.Fatal(err)
	}
	if v.listen != "127.0.0.1:2" || !v.plain || v.ticket != "" || len(v.proxies) != 2 || v.proxies[1] != "a,b" {
		t.Errorf("recalled %+v", v)
	}
}

func TestFlagsFileThatCannotBeUsed(t *testing.T) {
	for text, want := range map[string]string{
		"{":                        "damaged",
		`{"no-such":["1"]}`:        "--no-such",
		`{"plain-http":["maybe"]}`: "--plain-http",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, keptFlagsFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, _ := hubFlagSet()
		if err := recallFlags(f, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A restart with the flags that are on record writes nothing, as a full disk would not let it.
func TestFlagsOnRecordAreNotWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.String("listen", "", "")
	if err := f.Parse([]string{"--listen", ":1"}); err != nil {
		t.Fatal(err)
	}
	stat := func() fs.FileInfo {
		if err := keepFlags(f, dir); err != nil {
			t.Fatal(err)
		}
		i, err := os.Stat(filepath.Join(dir, keptFlagsFile))
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	if first := stat(); !os.SameFile(first, stat()) {
		t.Error("the same flags were written again")
	}
}
