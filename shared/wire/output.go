package wire

import (
	"bytes"
	"fmt"

	"tugline.dev/tugline/shared/fleet"
)

// EncodeOutput gives the body of an output frame: the JSON of the header, a zero
// byte, which JSON never contains, and the bytes. Error: too_large above MaxChunk.
func EncodeOutput(o Output) ([]byte, error) {
	if len(o.Data) > MaxChunk {
		return nil, fmt.Errorf("output chunk of %d bytes, at most %d: %w", len(o.Data), MaxChunk, fleet.TooLarge)
	}
	h, err := Encode(o)
	if err != nil {
		return nil, fmt.Errorf("encode output header: %w", err)
	}
	return append(append(h, 0), o.Data...), nil
}

// DecodeOutput reads what EncodeOutput wrote. Data aliases body. Errors:
// bad_request, too_large.
func DecodeOutput(body []byte) (Output, error) {
	var o Output
	head, data, ok := bytes.Cut(body, []byte{0})
	if !ok {
		return o, fmt.Errorf("output has no zero byte after its header: %w", fleet.BadRequest)
	}
	if err := Decode(head, &o); err != nil {
		return o, fmt.Errorf("decode output header: %w", err)
	}
	switch {
	case len(data) > MaxChunk:
		return o, fmt.Errorf("output chunk of %d bytes, at most %d: %w", len(data), MaxChunk, fleet.TooLarge)
	case o.Offset < 0:
		return o, fmt.Errorf("output offset %d is negative: %w", o.Offset, fleet.BadRequest)
	case o.Stream != StreamOutput && o.Stream != StreamEvents:
		return o, fmt.Errorf("output of stream %q: %w", o.Stream, fleet.BadRequest)
	}
	o.Data = data
	return o, nil
}
