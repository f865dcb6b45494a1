package arch

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of imports into ARCHITECTURE.md")

// table is the whole graph: a package may import only what stands behind it. A
// package that is missing here fails the test, so a new one, or a new arrow, is a
// change of this table on purpose. What is below test/ may import anything.
var table = []struct{ pkg, may string }{
	{"shared/fleet", ""},
	{"shared/wire", "shared/fleet"},
	{"shared/api", "shared/fleet"},
	{"consensus", ""},
	{"mesh", "shared/fleet"},
	{"mesh/meshtest", "mesh shared/fleet"},
	{"hub/circuit", "shared/fleet"},
	{"hub/retry", "shared/fleet"},
	{"hub/state", "hub/circuit hub/retry shared/fleet"},
	{"hub/sched", "hub/circuit hub/state shared/fleet"},
	{"hub/rollout", "shared/fleet"},
	{"hub/gate", "shared/fleet"},
	{"hub/durable", "shared/fleet"},
	{"hub/spool", "hub/durable shared/fleet"},
	{"hub/blob", "hub/durable shared/fleet"},
	{"hub/peer", "shared/fleet shared/api"},
	{"hub/replica", "hub/durable hub/spool hub/blob shared/fleet"},
	{"hub/session", "hub/retry hub/sched hub/spool hub/blob hub/state shared/fleet shared/wire"},
	{"hub/web", "hub/spool hub/blob hub/state hub/sched hub/circuit hub/retry hub/rollout hub/web/dashboard hub/web/passkey shared/fleet shared/api"},
	{"hub/web/dashboard", ""},
	{"hub/web/passkey", "shared/fleet"},
	{"hub", "hub/* consensus installers mesh shared/fleet shared/wire shared/api"},
	{"runner/process", "shared/fleet"},
	{"runner/durable", ""},
	{"runner/journal", "runner/durable shared/fleet"},
	{"runner/format", "runner/durable"},
	{"runner/probe", "runner/process shared/fleet"},
	{"runner/update", "runner/durable runner/process shared/fleet"},
	{"runner/provision", "runner/durable runner/process shared/fleet"},
	{"runner/service", "installers runner/durable runner/process shared/fleet"},
	{"runner/keychain", "runner/process"},
	{"runner/keychain/keychaintest", ""},
	{"runner/worktree", "runner/process runner/probe shared/fleet"},
	{"runner/harness", "runner/process shared/fleet"},
	{"runner/inventory", "shared/fleet"},
	{"runner/attempt", "runner/journal runner/worktree runner/harness runner/process runner/probe shared/fleet shared/wire"},
	{"runner", "runner/attempt runner/durable runner/format runner/journal runner/inventory runner/probe runner/worktree runner/harness runner/process runner/provision runner/update shared/fleet shared/wire"},
	{"installers", ""},
	{"installers/packages", "installers runner/service"},
	{"cmd/tugline/supervisor", "runner/process"},
	{"cmd/tugline", "cmd/tugline/supervisor hub hub/state mesh runner runner/attempt runner/durable runner/format runner/harness runner/journal runner/keychain runner/probe runner/process runner/service runner/update runner/worktree consensus shared/*"},
}

// owners names the only packages that may import a costly dependency, tests aside.
var owners = []struct{ dep, who string }{
	{"github.com/hashicorp/raft", "consensus"},
	{"github.com/hashicorp/raft-autopilot", "consensus"},
	{"github.com/hashicorp/raft-boltdb", "consensus"},
	{"github.com/boltdb/bolt", "consensus"},
	{"go.etcd.io/bbolt", "consensus"},
	{"github.com/hashicorp/go-hclog", "consensus"},
	{"github.com/hashicorp/go-memdb", "hub/state"},
	{"github.com/hashicorp/memberlist", "mesh"},
	{"golang.zx2c4.com/wireguard", "mesh"},
	{"gvisor.dev/gvisor", "mesh"},
	{"github.com/gorilla/websocket", "hub/session runner"},
	{"github.com/danielgtaylor/huma", "hub/web"},
	{"github.com/prometheus", "hub/web"},
	{"github.com/go-webauthn/webauthn", "hub/web/passkey"},
	{"github.com/spf13/cobra", "cmd/tugline"},
	{"aead.dev/minisign", "runner/update"},
	{"github.com/minio/selfupdate", "runner/update"},
	{"os/exec", "runner/process"},
}

func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// imports says which imports of a file its package may not have.
func imports(s source) (bad []string) {
	if s.test || below(s.pkg, "test") {
		return nil
	}
	row := slices.IndexFunc(table, func(r struct{ pkg, may string }) bool { return r.pkg == s.pkg })
	if row < 0 {
		return []string{fmt.Sprintf("%s: package %s is not in the table of imports (test/arch/imports_test.go)", s.path, s.pkg)}
	}
	for _, im := range s.file.Imports {
		path, err := strconv.Unquote(im.Path.Value)
		if err != nil {
			return []string{fmt.Sprintf("%s: import %s: %v", s.path, im.Path.Value, err)}
		}
		if in, inside := strings.CutPrefix(path, module); inside && !slices.ContainsFunc(strings.Fields(table[row].may), func(m string) bool {
			dir, whole := strings.CutSuffix(m, "/*")
			return in == m || whole && strings.HasPrefix(in, dir+"/")
		}) {
			bad = append(bad, fmt.Sprintf("%s: %s may not import %s", s.path, s.pkg, in))
		}
		for _, o := range owners {
			if below(path, o.dep) && !slices.Contains(strings.Fields(o.who), s.pkg) {
				bad = append(bad, fmt.Sprintf("%s: only %s may import %s", s.path, o.who, o.dep))
			}
		}
	}
	return bad
}

// TestImports holds every file against the table.
func TestImports(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		seen[s.pkg] = true
		report(t, imports(s))
	}
	for _, row := range table {
		if !seen[row.pkg] {
			t.Errorf("the table has %s, and there is no such package", row.pkg)
		}
		for _, m := range strings.Fields(row.may) {
			if dir, whole := strings.CutSuffix(m, "/*"); !seen[m] && !whole || whole && dir == "" {
				t.Errorf("%s may import %s, and there is no such package", row.pkg, m)
			}
		}
	}
}

// TestImportsRule sees that the rule itself finds what it should.
func TestImportsRule(t *testing.T) {
	for path, want := range map[string]int{
		"hub/gate/x.go|tugline.dev/tugline/hub/state":        1,
		"hub/gate/x.go|tugline.dev/tugline/shared/fleet":     0,
		"hub/gate/x_test.go|tugline.dev/tugline/hub/state":   0,
		"hub/x.go|tugline.dev/tugline/hub/state":             0,
		"hub/x.go|tugline.dev/tugline/runner":                1,
		"runner/x.go|tugline.dev/tugline/hub/state":          1,
		"runner/x.go|os/exec":                                1,
		"runner/process/x.go|os/exec":                        0,
		"hub/x.go|go.etcd.io/bbolt/errors":                   1,
		"hub/x.go|github.com/hashicorp/raft-boltdb/v2":       1,
		"consensus/x.go|github.com/hashicorp/raft-boltdb/v2": 0,
		"hub/x.go|github.com/hashicorp/raft-autopilot":       1,
		"hub/state/x.go|github.com/hashicorp/raftlike":       0,
		"novel/x.go|fmt":         1,
		"test/mesh/x.go|os/exec": 0,
		"cmd/tugline/x.go|tugline.dev/tugline/shared/api":     0,
		"cmd/tugline/x.go|tugline.dev/tugline/hub/session":    1,
		"consensus/x.go|tugline.dev/tugline/shared/fleet":     1,
		"runner/attempt/x.go|tugline.dev/tugline/runner":      1,
		"shared/fleet/x.go|tugline.dev/tugline/shared/wire":   1,
		"hub/session/x.go|github.com/gorilla/websocket":       0,
		"hub/web/x.go|github.com/gorilla/websocket":           1,
		"hub/web/x.go|github.com/prometheus/client_golang/x/": 0,
	} {
		file, im, _ := strings.Cut(path, "|")
		if got := imports(mustParse(t, file, "package x\nimport _ "+strconv.Quote(im)+"\n")); len(got) != want {
			t.Errorf("%s importing %s: %d problems %q, want %d", file, im, len(got), got, want)
		}
	}
}

const begin, end = "<!-- imports -->\n", "<!-- /imports -->"

// TestArchitecture: the document shows this very table.
func TestArchitecture(t *testing.T) {
	path := filepath.Join(root, "ARCHITECTURE.md")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("ARCHITECTURE.md cannot be read (%v); it must be there, with the lines %s and %s", err, strings.TrimSpace(begin), end)
	}
	head, rest, ok := strings.Cut(string(b), begin)
	shown, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("ARCHITECTURE.md needs a line %s and after it a line %s; the table between them is written by go test ./test/arch -update", strings.TrimSpace(begin), end)
	}
	want := render()
	if shown == want {
		return
	}
	if !*update {
		t.Fatalf("the table of imports in ARCHITECTURE.md is not the one that is enforced; go test ./test/arch -update writes it. It should be\n%s", want)
	}
	if err := os.WriteFile(path, []byte(head+begin+want+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// render writes the table for people, as Markdown.
func render() string {
	var b strings.Builder
	b.WriteString("| package | may import |\n|---|---|\n")
	for _, r := range table {
		may := "nothing of this module"
		if r.may != "" {
			may = "`" + strings.Join(strings.Fields(r.may), "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", r.pkg, may)
	}
	b.WriteString("| `test/*` | anything |\n\n| dependency | only in |\n|---|---|\n")
	for _, o := range owners {
		fmt.Fprintf(&b, "| `%s` | `%s` |\n", o.dep, strings.Join(strings.Fields(o.who), "`, `"))
	}
	return b.String()
}
