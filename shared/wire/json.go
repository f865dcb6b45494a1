package wire

import (
	"encoding/json"
	"fmt"

	"tugline.dev/tugline/shared/fleet"
)

// MaxDepth bounds how deep a message's JSON may nest.
const MaxDepth = 32

// Encode gives the JSON of a message. Error: too_large above MaxBody.
func Encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(b) > MaxBody {
		return nil, fmt.Errorf("message of %d bytes, at most %d: %w", len(b), MaxBody, fleet.TooLarge)
	}
	return b, nil
}

// Decode reads the JSON of a message: one value, at most MaxBody bytes and MaxDepth
// levels. Fields that this version does not know are passed over. Errors:
// too_large, bad_request.
func Decode(b []byte, v any) error {
	if len(b) > MaxBody {
		return fmt.Errorf("message of %d bytes, at most %d: %w", len(b), MaxBody, fleet.TooLarge)
	}
	if tooDeep(b) {
		return fmt.Errorf("message nests deeper than %d levels: %w", MaxDepth, fleet.BadRequest)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %w", fleet.BadRequest, err)
	}
	return nil
}

// tooDeep counts brackets outside strings.
func tooDeep(b []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
