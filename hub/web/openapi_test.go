package web

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// operation is one of the document's.
type operation struct {
	method, path string
	id           string
	spec         map[string]any
}

// document gives the OpenAPI document and its operations, by id.
func (w *world) document() (map[string]any, []operation) {
	w.t.Helper()
	doc := get[map[string]any](w, request{method: "GET", path: "/openapi.json"})
	var ops []operation
	for path, item := range doc["paths"].(map[string]any) {
		for method, spec := range item.(map[string]any) {
			o := operation{method: strings.ToUpper(method), path: path, spec: spec.(map[string]any)}
			o.id, _ = o.spec["operationId"].(string)
			ops = append(ops, o)
		}
	}
	slices.SortFunc(ops, func(a, b operation) int { return strings.Compare(a.id, b.id) })
	return doc, ops
}

func TestDocumentIsTheGoldenOne(t *testing.T) {
	w := newWorld(t)
	a := w.do(request{method: "GET", path: "/openapi.json"})
	var got bytes.Buffer
	if err := json.Indent(&got, a.body, "", " "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	const golden = "testdata/openapi.json"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("the interface changed; look whether clients can bear it, then run with -update (-want +got):\n%s", diff)
	}
	fromServer, err := w.srv.OpenAPI()
	if err != nil || !json.Valid(fromServer) {
		t.Errorf("OpenAPI(): %v", err)
	}
}

func TestDocumentIsSound(t *testing.T) {
	w := newWorld(t)
	doc, ops := w.document()
	if v, _ := doc["openapi"].(string); !strings.HasPrefix(v, "3.1.") {
		t.Errorf("openapi is %q; want 3.1", v)
	}
	// Every reference leads somewhere.
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				ref, ok := x.(string)
				if k != "$ref" || !ok {
					walk(at+"/"+k, x)
					continue
				}
				var to any = doc
				for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
					m, _ := to.(map[string]any)
					to = m[part]
				}
				if to == nil {
					t.Errorf("%s: %s leads nowhere", at, ref)
				}
			}
		case []any:
			for _, x := range v {
				walk(at+"[]", x)
			}
		}
	}
	walk("", doc)
	seen := map[string]bool{}
	for _, o := range ops {
		if o.id == "" || seen[o.id] {
			t.Errorf("%s %s: operation id %q is missing or twice", o.method, o.path, o.id)
		}
		seen[o.id] = true
		if sec, _ := o.spec["security"].([]any); len(sec) == 0 {
			t.Errorf("%s: no security", o.id)
		}
		if s, _ := o.spec["summary"].(string); s == "" {
			t.Errorf("%s: no summary", o.id)
		}
		refusal, success := false, false
		for status, r := range o.spec["responses"].(map[string]any) {
			content, _ := r.(map[string]any)["content"].(map[string]any)
			switch status[0] {
			case '2':
				success = true
			case '4':
				p, _ := content["application/problem+json"].(map[string]any)
				s, _ := p["schema"].(map[string]any)
				if s["$ref"] != "#/components/schemas/Problem" {
					t.Errorf("%s: response %s is no problem document: %v", o.id, status, content)
				}
				refusal = true
			}
		}
		if !refusal || !success {
			t.Errorf("%s: has a success %t, a refusal %t; want both", o.id, success, refusal)
		}
		for name := range strings.SplitSeq(o.path, "/") {
			if !strings.HasPrefix(name, "{") {
				continue
			}
			params, _ := o.spec["parameters"].([]any)
			if !slices.ContainsFunc(params, func(p any) bool {
				m := p.(map[string]any)
				return "{"+m["name"].(string)+"}" == name && m["in"] == "path" && m["required"] == true
			}) {
				t.Errorf("%s: path parameter %s is not described", o.id, name)
			}
		}
	}
}

// openOps need no credential: they are how a browser comes by one.
var openOps = []string{"sign-in", "list-ways-in", "begin-sign-in", "sign-in-by-passkey"}

// roles is who may do what; an operation that is not here is a failure.
var roles = map[string]fleet.Role{
	"submit-job": fleet.RoleOperator, "list-jobs": fleet.RoleViewer, "get-job": fleet.RoleViewer, "get-prompt": fleet.RoleViewer, "explain-job": fleet.RoleViewer,
	"cancel-job": fleet.RoleOperator, "retry-job": fleet.RoleOperator, "accept-job": fleet.RoleOperator, "reject-job": fleet.RoleOperator,
	"pulled-job": fleet.RoleOperator, "follow-ups-job": fleet.RoleOperator,
	"get-log": fleet.RoleViewer, "list-artifacts": fleet.RoleViewer, "get-artifact": fleet.RoleViewer,
	"put-blob": fleet.RoleOperator, "head-blob": fleet.RoleOperator, "get-blob": fleet.RoleOperator,
	"list-runners": fleet.RoleViewer, "get-runner": fleet.RoleViewer, "cordon-runner": fleet.RoleOperator, "drain-runner": fleet.RoleOperator, "resume-runner": fleet.RoleOperator,
	"get-health": fleet.RoleViewer, "list-sessions": fleet.RoleOperator, "get-session": fleet.RoleOperator, "set-slots": fleet.RoleAdmin, "list-alerts": fleet.RoleViewer,
	"list-releases": fleet.RoleViewer, "add-release": fleet.RoleAdmin, "offer-release": fleet.RoleAdmin, "remove-release": fleet.RoleAdmin,
	"update-runner": fleet.RoleAdmin, "set-ring": fleet.RoleAdmin,
	"list-provisioning": fleet.RoleViewer, "provision-runner": fleet.RoleOperator, "cancel-provisioning": fleet.RoleOperator,
	"list-budgets": fleet.RoleViewer, "set-budget": fleet.RoleAdmin, "remove-budget": fleet.RoleAdmin,
	"list-circuits": fleet.RoleViewer, "reset-circuit": fleet.RoleOperator, "open-circuit": fleet.RoleOperator,
	"trust-runner": fleet.RoleAdmin, "revoke-runner": fleet.RoleAdmin, "remove-runner": fleet.RoleAdmin,
	"list-members": fleet.RoleViewer, "remove-member": fleet.RoleAdmin, "transfer-leader": fleet.RoleAdmin, "drain-member": fleet.RoleAdmin,
	"undrain-member": fleet.RoleAdmin, "rotate-member": fleet.RoleAdmin, "make-backup": fleet.RoleAdmin, "restore-backup": fleet.RoleAdmin,
	"accept-clock": fleet.RoleAdmin, "list-orphans": fleet.RoleViewer, "adopt-orphan": fleet.RoleOperator, "discard-orphan": fleet.RoleOperator,
	"create-ticket": fleet.RoleAdmin, "create-token": fleet.RoleAdmin, "list-tokens": fleet.RoleAdmin, "revoke-token": fleet.RoleAdmin,
	"list-keys": fleet.RoleViewer, "rotate-key": fleet.RoleAdmin,
	"get-status": fleet.RoleViewer, "set-setting": fleet.RoleAdmin, "list-audit": fleet.RoleAdmin, "list-tips": fleet.RoleOperator,
	"begin-passkey": fleet.RoleViewer, "add-passkey": fleet.RoleViewer, "list-passkeys": fleet.RoleViewer, "remove-passkey": fleet.RoleViewer,
	"get-sign-in": fleet.RoleViewer, "sign-out": fleet.RoleViewer, "list-sign-ins": fleet.RoleAdmin, "end-sign-in": fleet.RoleAdmin,
	"stream-events": fleet.RoleViewer, "stream-feed": fleet.RoleViewer, "get-overview": fleet.RoleViewer, "get-error": fleet.RoleAdmin, "preview-job": fleet.RoleOperator, "stream-job": fleet.RoleViewer,
}
