//go:build bench

package bench

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A row is one figure of the table.
type row struct {
	metric string
	value  float64
	unit   string
	spread []float64 // of the rounds, where there were several
	aim    string    // in words; empty: none
	met    bool
}

// sheet gathers the figures of one run.
type sheet struct {
	t     *testing.T
	marks string // of its table in README.md
	rows  []row
}

// note adds a figure that no aim is set for.
func (s *sheet) note(metric, unit string, rounds ...float64) {
	s.add(row{metric: metric, unit: unit, value: median(rounds), spread: rounds})
}

// most adds a figure that should not be above the bound.
func (s *sheet) most(metric, unit string, bound float64, aim string, rounds ...float64) {
	v := median(rounds)
	s.add(row{metric: metric, unit: unit, value: v, spread: rounds, aim: aim, met: v <= bound})
}

// least adds a figure that should not be below the bound.
func (s *sheet) least(metric, unit string, bound float64, aim string, rounds ...float64) {
	v := median(rounds)
	s.add(row{metric: metric, unit: unit, value: v, spread: rounds, aim: aim, met: v >= bound})
}

func (s *sheet) add(r row) {
	s.rows = append(s.rows, r)
	s.t.Logf("%-58s %s  %s", r.metric, figure(r.value, r.unit), r.verdict())
}

func (r row) verdict() string {
	switch {
	case r.aim == "":
		return ""
	case r.met:
		return "met (" + r.aim + ")"
	}
	return "MISSED (" + r.aim + ")"
}

// figure writes a value with three significant places and its unit.
func figure(v float64, unit string) string {
	n := fmt.Sprintf("%.0f", v)
	switch {
	case v < 10:
		n = fmt.Sprintf("%.2f", v)
	case v < 100:
		n = fmt.Sprintf("%.1f", v)
	}
	return strings.TrimSpace(n + " " + unit)
}

func (r row) range3() string {
	if len(r.spread) < 2 {
		return ""
	}
	return figure(slices.Min(r.spread), "") + " … " + figure(slices.Max(r.spread), "")
}

const readme = "README.md"

// committed finds the table that was committed last.
func (s *sheet) committed() *regexp.Regexp {
	return regexp.MustCompile(`(?s)(<!-- ` + s.marks + ` -->\n).*(<!-- end of ` + s.marks + ` -->)`)
}

// finish shows the table, and writes it into README.md where that was asked for. Of one
// part alone, the rows of that part are replaced.
func (s *sheet) finish() {
	text := s.print()
	if *update && !s.t.Failed() {
		if err := os.WriteFile(readme, []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
}

// print shows the table, with the figures that were committed last beside it, and
// gives the text for the next commit.
func (s *sheet) print() (text string) {
	was := map[string]string{}
	b, err := os.ReadFile(readme)
	if err != nil {
		s.t.Error(err)
	}
	var old []string // lines, of which those measured now are replaced
	for _, line := range strings.Split(string(s.committed().Find(b)), "\n") {
		if name, value := cells(line); name != "" && name != "metric" && name != "---" {
			was[name], old = value, append(old, line)
		}
	}
	if *only == "" {
		old = nil
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\n%-58s %15s %21s  %-6s %-52s %s\n", "metric", "value", "rounds", "met", "aim", "committed")
	missed := 0
	for _, r := range s.rows {
		met := ""
		if r.aim != "" {
			if met = "yes"; !r.met {
				met = "NO"
				missed++
			}
		}
		v := figure(r.value, r.unit)
		fmt.Fprintf(&out, "%-58s %15s %21s  %-6s %-52s %s\n", r.metric, v, r.range3(), met, r.aim, was[strings.TrimSpace(r.metric)])
		old = replaced(old, fmt.Sprintf("| %s | %s | %s | %s | %s |", r.metric, v, r.range3(), met, r.aim))
	}
	next := "| metric | value | rounds | met | aim |\n|---|---|---|---|---|\n" + strings.Join(old, "\n") + "\n"
	fmt.Fprintf(&out, "%d aims missed\n", missed)
	fmt.Println(out.String())
	return s.committed().ReplaceAllString(string(b), "${1}"+next+"${2}")
}

// cells gives the first two cells of a line of a table.
func cells(line string) (name, value string) {
	f := strings.Split(line, "|")
	if len(f) < 4 {
		return "", ""
	}
	return strings.TrimSpace(f[1]), strings.TrimSpace(f[2])
}

// replaced puts a line into the place of the one with the same name, or behind the rest.
func replaced(lines []string, line string) []string {
	name, _ := cells(line)
	for i, l := range lines {
		if n, _ := cells(l); n == name {
			lines[i] = line
			return lines
		}
	}
	return append(lines, line)
}

func median(v []float64) float64 {
	return quantile(v, 0.5)
}

// quantile gives the value below which the part q lies.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[min(int(q*float64(len(v))), len(v)-1)]
}
