package wire

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"

	"tugline.dev/tugline/shared/fleet"
)

// finishedFields is a Finished without the methods that make it its signed form.
type finishedFields Finished

// signedFinished is the form of a Finished on the wire.
type signedFinished struct {
	Result []byte `json:"result"` // JSON of the fields, as signed
	Sig    []byte `json:"sig,omitempty"`
}

// SignFinished signs f in place for one attempt. Changes of f after it are not sent.
func SignFinished(priv ed25519.PrivateKey, job fleet.JobID, fence fleet.Fence, f *Finished) error {
	b, err := Encode((*finishedFields)(f))
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	f.signed, f.sig = b, ed25519.Sign(priv, finishedMessage(job, fence, b))
	return nil
}

// VerifyFinished checks that the runner that owns pub signed f for this attempt.
// Error: bad_signature.
func VerifyFinished(pub ed25519.PublicKey, job fleet.JobID, fence fleet.Fence, f *Finished) error {
	if len(pub) != ed25519.PublicKeySize || !ed25519.Verify(pub, finishedMessage(job, fence, f.signed), f.sig) {
		return fmt.Errorf("result of job %s under fence %s does not verify by the runner's key: %w", job, fence, fleet.BadSignature)
	}
	return nil
}

func finishedMessage(job fleet.JobID, fence fleet.Fence, b []byte) []byte {
	return append([]byte("tugline result v1\x00"+string(job)+"\x00"+fence.String()+"\x00"), b...)
}

// MarshalJSON gives the signed bytes where there are any, else those of the fields.
func (f *Finished) MarshalJSON() ([]byte, error) {
	s := signedFinished{Result: f.signed, Sig: f.sig}
	if s.Result == nil {
		b, err := json.Marshal((*finishedFields)(f))
		if err != nil {
			return nil, err
		}
		s.Result = b
	}
	return json.Marshal(s)
}

// UnmarshalJSON keeps the bytes as they came, for VerifyFinished.
func (f *Finished) UnmarshalJSON(b []byte) error {
	var s signedFinished
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	var fields finishedFields
	if err := Decode(s.Result, &fields); err != nil {
		return fmt.Errorf("decode result: %w", err)
	}
	*f = Finished(fields)
	f.signed, f.sig = s.Result, s.Sig
	return nil
}
