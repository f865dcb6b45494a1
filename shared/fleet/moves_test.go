package fleet

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestMoves renders every cell of the table of moves: which state may follow which,
// and why. testdata/moves.txt is what the documents show.
func TestMoves(t *testing.T) {
	var out bytes.Buffer
	head := fmt.Sprintf("%-12s", "from \\ to")
	for _, to := range States {
		head += fmt.Sprintf(" %-12s", to)
	}
	fmt.Fprintln(&out, strings.TrimRight(head, " "))
	for _, from := range States {
		line := fmt.Sprintf("%-12s", from)
		for _, to := range States {
			mark := "."
			if _, ok := Legal(from, to); ok {
				mark = "x"
			}
			line += fmt.Sprintf(" %-12s", mark)
		}
		fmt.Fprintln(&out, strings.TrimRight(line, " "))
	}
	for _, from := range States {
		out.WriteByte('\n')
		for _, to := range States {
			m, ok := Legal(from, to)
			if ok != (m != "") {
				t.Errorf("%s to %s: legal %v, because %q", from, to, ok, m)
			}
			if ok {
				fmt.Fprintf(&out, "%-12s -> %-12s  %s\n", from, to, m)
			}
		}
	}
	path := filepath.Join("testdata", "moves.txt")
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", path, d)
	}
}

// TestMovesShape holds the table against what it must be as a whole.
func TestMovesShape(t *testing.T) {
	for from, row := range moves {
		if !slices.Contains(States, from) {
			t.Errorf("unknown state %q", from)
		}
		for to := range row {
			if !slices.Contains(States, to) || from == to {
				t.Errorf("bad move from %s to %q", from, to)
			}
		}
	}
	if _, ok := Legal("", Queued); ok {
		t.Error("nothing comes from no state")
	}
	// Every state is reached from queued, and from every state a job can be queued
	// again or end.
	reached := map[State]bool{Queued: true}
	for range States {
		for from := range reached {
			for to := range moves[from] {
				reached[to] = true
			}
		}
	}
	for _, s := range States {
		if !reached[s] {
			t.Errorf("%s is never reached", s)
		}
		if len(moves[s]) == 0 {
			t.Errorf("nothing follows %s", s)
		}
		if s.Ended() && s.Active() {
			t.Errorf("%s is active and ended", s)
		}
		if _, again := Legal(s, Queued); s.Ended() && !again {
			t.Errorf("%s cannot be followed by another turn or a retry", s)
		}
		if _, ok := Legal(s, Assigned); ok && s != Queued {
			t.Errorf("%s is assigned without having been queued", s)
		}
	}
	// Only what ran can be verified, and only a verdict or a person makes a success.
	for _, s := range []State{Succeeded, Failed, NeedsReview, Cancelled} {
		for _, to := range []State{Running, Verifying} {
			if _, ok := Legal(s, to); ok {
				t.Errorf("%s must not become %s", s, to)
			}
		}
	}
}

// TestVerdictState maps each decision to a state that a verifying job may take.
func TestVerdictState(t *testing.T) {
	for d, want := range map[Decision]State{Accept: Succeeded, Reject: Failed, Ask: NeedsReview, Unknown: NeedsReview, "": NeedsReview} {
		got := Verdict{Decision: d}.State()
		if got != want {
			t.Errorf("%q leads to %s, want %s", d, got, want)
		}
		for _, from := range []State{Running, Verifying, Lost, Queued, Assigned, Preparing, Blocked} {
			if _, ok := Legal(from, got); !ok {
				t.Errorf("a verdict of %q cannot settle a job that is %s", d, from)
			}
		}
	}
}
