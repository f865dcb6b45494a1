package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
)

// kindMixed tells that a field of a body has a value of another kind than it takes. The
// value itself is not told: it may be a secret in the wrong place.
func kindMixed(wanted, given string) string {
	return fmt.Sprintf("%s is wanted, and %s was given", wanted, given)
}

// wantedKinds are the library's words for what a field takes, and ours.
var wantedKinds = map[string]string{
	validation.MsgExpectedBoolean: "true or false", validation.MsgExpectedNumber: "a number", validation.MsgExpectedInteger: "a whole number",
	validation.MsgExpectedString: "text", validation.MsgExpectedArray: "a list", validation.MsgExpectedObject: "an object",
}

// detailText words what the library found wrong in a request.
func detailText(d *huma.ErrorDetail) string {
	if wanted := wantedKinds[d.Message]; wanted != "" && strings.HasPrefix(d.Location, "body") {
		return kindMixed(wanted, givenKind(d.Value))
	}
	return d.Message // never the value
}

func givenKind(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprint(v)
	case string:
		return "text"
	case float64:
		if v != float64(int64(v)) {
			return "a number with a fraction"
		}
		return "a number"
	case []any:
		return "a list"
	}
	return "an object"
}

// plainly words what the decoder found wrong in a body whose kinds the library had found
// right: how a number is written, and how large it is.
func plainly(err error) error {
	var mixed *json.UnmarshalTypeError
	if !errors.As(err, &mixed) {
		return err
	}
	wanted, given := "a whole number", "one that is too large or too small"
	switch k := mixed.Type.Kind(); {
	case k == reflect.Float32 || k == reflect.Float64:
		wanted = "a number"
	case strings.ContainsAny(strings.TrimPrefix(mixed.Value, "number"), "eE."):
		given = "one written with a point or an exponent"
	}
	return errors.New(strings.TrimPrefix(mixed.Field+": "+kindMixed(wanted, given), ": "))
}
