package spool

import (
	"path/filepath"
	"testing"
)

func FuzzParseSeal(f *testing.F) {
	for _, seed := range []string{
		"seal 1 0 -\n",
		"seal 1 12 " + string(digest("x")) + "\n",
		"seal 1 -1 -\n", "seal 1 +1 -\n", "seal 1 1 - ", "seal 2 1 -\n", "seal 1 1 -\n\n", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := parseSeal(data)
		if err != nil {
			return
		}
		if l.length < 0 || string(l.encode()) != string(data) {
			t.Errorf("parseSeal(%q) = %+v, which is written %q", data, l, l.encode())
		}
	})
}

func FuzzParseFile(f *testing.F) {
	for _, seed := range []string{"1-2.output", "1-2.events", "01-2.output", "0-0.output", "1-2.output.seal", "..", "1-2./../x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		k, ok := parseFile("job", name)
		if ok && (k.check() != nil || k.path("dir") != filepath.Join("dir", "job", name)) {
			t.Errorf("parseFile(%q) = %+v, whose path is %s", name, k, k.path("dir"))
		}
	})
}
