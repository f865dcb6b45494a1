package wire

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tugline.dev/tugline/shared/fleet"
)

var update = flag.Bool("update", false, "rewrite golden files and the vectors in PROTOCOL.md")

// messages lists every message that crosses the wire.
var messages = []any{
	Challenge{}, Hello{}, Welcome{}, Goodbye{}, Heartbeat{}, HeartbeatReply{}, Report{}, ReportAck{},
	Output{}, OutputAck{}, Permit{}, PermitReply{}, Restarting{}, Live{}, Order{}, Assignment{}, Stop{}, Renew{}, Update{}, Provision{}, ProvisionView{},
	Enrol{}, Enrolled{}, Problem{}, Ticket{}, AskSession{},
}

var moment = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fill gives every exported field a value that names it, so that a golden file
// shows each field once and a new field cannot be forgotten.
func fill(v reflect.Value, name string, n *int64) {
	*n++
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = moment
		return
	case *fleet.Fence:
		*x = fleet.Fence{Epoch: 1, Index: uint64(*n)}
		return
	case *json.RawMessage:
		*x = json.RawMessage(`"` + name + `"`)
		return
	case *[]byte:
		*x = []byte(name)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, n)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fill(v.Field(i), strings.ToLower(f.Name), n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), name, n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		e := reflect.New(v.Type().Elem()).Elem()
		fill(e, name, n)
		v.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), e)
	case reflect.String:
		v.SetString(name)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*n) / 4)
	case reflect.Int, reflect.Int64:
		v.SetInt(*n)
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	default:
		panic("fill a " + v.Type().String())
	}
}

// TestGolden holds every message to its recorded form, both ways.
func TestGolden(t *testing.T) {
	for _, m := range append([]any{finishedFields{}}, messages...) {
		typ := reflect.TypeOf(m)
		t.Run(typ.Name(), func(t *testing.T) {
			var n int64
			v := reflect.New(typ)
			fill(v.Elem(), "", &n)
			got, err := json.MarshalIndent(v.Interface(), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			file := filepath.Join("testdata", strings.ToLower(typ.Name())+".json")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Errorf("%s has changed on the wire (-recorded +now); more than a field that may be passed over needs a new protocol version:\n%s", typ.Name(), d)
			}
			back := reflect.New(typ)
			d := json.NewDecoder(bytes.NewReader(want))
			d.DisallowUnknownFields()
			if err := d.Decode(back.Interface()); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(v.Elem().Interface(), back.Elem().Interface(), cmpopts.IgnoreUnexported(Finished{}, finishedFields{})); d != "" {
				t.Errorf("%s read back differs (-sent +read):\n%s", typ.Name(), d)
			}
		})
	}
}

// TestDocumented sees that PROTOCOL.md names every field of every message.
func TestDocumented(t *testing.T) {
	doc, err := os.ReadFile("../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	all := append([]any{Finished{}, fleet.Spec{}, fleet.Repo{}, fleet.RunnerFacts{}, fleet.HarnessInfo{}, fleet.Evidence{}, fleet.Usage{}, AttemptView{}, Desired{}, Signed{}, Resume{}, ReportItem{}, Accepted{}, Declined{}, Fact{}, Lost{}, Sealed{}, Evidence{}, Pushed{}, Renewed{}, Origin{}, ItemAck{}, SigningKey{}, KeysHeld{}, KeyNews{}, NewKey{}, CAKey{}, Offer{}, fleet.RunnerUpdate{}}, messages...)
	for _, m := range all {
		typ := reflect.TypeOf(m)
		_, section, found := strings.Cut(string(doc), "\n#### "+typ.Name()+"\n")
		if !found {
			t.Errorf("PROTOCOL.md has no section %q", "#### "+typ.Name())
			continue
		}
		section, _, _ = strings.Cut(section, "\n#### ")
		section, _, _ = strings.Cut(section, "\n## ")
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name != "" && name != "-" && !strings.Contains(section, "`"+name+"`") {
				t.Errorf("PROTOCOL.md does not name %s of %s", name, typ.Name())
			}
		}
	}
	for _, c := range []fleet.Code{
		fleet.BadRequest, fleet.Unauthorised, fleet.TicketInvalid, fleet.TicketExpired, fleet.TicketUsed, fleet.RunnerUnknown, fleet.RunnerRevoked,
		fleet.BadSignature, fleet.BadSequence, fleet.ClusterMismatch, fleet.ClonedIdentity, fleet.Superseded, fleet.ProtocolVersion,
		fleet.SigningKeyUnknown, fleet.SessionEnded, fleet.Restarting, fleet.StaleFence, fleet.CancelRequested, fleet.UnknownCritical, fleet.OrderExpired,
		fleet.SpoolGap, fleet.SpoolMismatch, fleet.LogSealed, fleet.DiskFull, fleet.BlobDigest, fleet.BlobMissing, fleet.TooLarge, fleet.Unavailable, fleet.OutcomeUnknown,
		fleet.Internal, fleet.NotFound, fleet.Conflict, fleet.NotCurrent, fleet.Forbidden, fleet.StaleEpoch, fleet.OrphansFull,
	} {
		if !strings.Contains(string(doc), "`"+string(c)+"`") {
			t.Errorf("PROTOCOL.md does not explain the code %s", c)
		}
	}
}
