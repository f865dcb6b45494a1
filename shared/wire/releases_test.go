package wire

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestMessagesOfTheReleaseBefore: every field that the release before sends has the name and
// the form that it had. What is in release-1 is never rewritten once that is released; a release adds a folder.
func TestMessagesOfTheReleaseBefore(t *testing.T) {
	types := map[string]reflect.Type{}
	for _, m := range append([]any{finishedFields{}}, messages...) {
		typ := reflect.TypeOf(m)
		types[strings.ToLower(typ.Name())+".json"] = typ
	}
	files, err := os.ReadDir("testdata/release-1")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d recorded messages, %v", len(files), err)
	}
	for _, f := range files {
		typ, known := types[f.Name()]
		if !known {
			t.Errorf("%s of the release before is not known any more", f.Name())
			continue
		}
		was, err := os.ReadFile(filepath.Join("testdata/release-1", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		v := reflect.New(typ)
		d := json.NewDecoder(bytes.NewReader(was))
		d.DisallowUnknownFields()
		if err := d.Decode(v.Interface()); err != nil {
			t.Errorf("%s of the release before: %v", typ.Name(), err)
			continue
		}
		now, err := json.Marshal(v.Interface())
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := json.Unmarshal(was, &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(now, &b); err != nil {
			t.Fatal(err)
		}
		if !within(a, b) {
			t.Errorf("%s of the release before is read as\n%s, was\n%s", typ.Name(), now, was)
		}
	}
}

// within says whether b has all of a.
func within(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		m, ok := b.(map[string]any)
		for k, v := range a {
			ok = ok && within(v, m[k])
		}
		return ok
	case []any:
		l, ok := b.([]any)
		ok = ok && len(l) == len(a)
		for i := range a {
			ok = ok && within(a[i], l[i])
		}
		return ok
	}
	return reflect.DeepEqual(a, b)
}

// TestMessagesOfTheReleaseAfter: a field more in any part of any message changes nothing.
func TestMessagesOfTheReleaseAfter(t *testing.T) {
	for _, m := range append([]any{finishedFields{}}, messages...) {
		typ := reflect.TypeOf(m)
		is, err := os.ReadFile(filepath.Join("testdata", strings.ToLower(typ.Name())+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var doc any
		if err := json.Unmarshal(is, &doc); err != nil {
			t.Fatal(err)
		}
		n := addField(doc, typ)
		more, err := json.Marshal(doc)
		if err != nil || n == 0 {
			t.Fatalf("%s: %d fields were added, %v", typ.Name(), n, err)
		}
		want, got := reflect.New(typ), reflect.New(typ)
		if err := Decode(is, want.Interface()); err != nil {
			t.Fatal(err)
		}
		if err := Decode(more, got.Interface()); err != nil {
			t.Errorf("%s with %d fields more: %v", typ.Name(), n, err)
		}
		if d := cmp.Diff(want.Interface(), got.Interface(), cmpopts.IgnoreUnexported(Finished{}, finishedFields{})); d != "" {
			t.Errorf("%s with %d fields more (-without +with):\n%s", typ.Name(), n, d)
		}
	}
	if v, ok := Negotiate([]int{Version + 1, Version}); !ok || v != Version {
		t.Errorf("with the release after version %d is spoken, %v", v, ok)
	}
	if v, ok := Negotiate([]int{Version + 1}); ok {
		t.Errorf("with a release far ahead version %d is spoken", v)
	}
}

// addField puts a field that nobody knows into every object of a document that is a struct of
// a type, and counts them.
func addField(doc any, typ reflect.Type) (n int) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch d := doc.(type) {
	case map[string]any:
		switch typ.Kind() {
		case reflect.Map:
			for _, v := range d {
				n += addField(v, typ.Elem())
			}
		case reflect.Struct:
			for _, f := range reflect.VisibleFields(typ) {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if v, ok := d[name]; ok {
					n += addField(v, f.Type)
				}
			}
			d["of_the_release_after"] = map[string]any{"a": []any{1.0, "b"}}
			n++
		}
	case []any:
		if typ.Kind() == reflect.Slice {
			for _, v := range d {
				n += addField(v, typ.Elem())
			}
		}
	}
	return n
}
