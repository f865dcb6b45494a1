package wire

import (
	"net/url"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// EnrolPath is where a ticket becomes an identity.
const EnrolPath = "/v1/enrol"

// Subprotocol is the WebSocket subprotocol of a link.
const Subprotocol = "tugline.v1"

// LinkPath is where a runner's WebSocket link is opened.
func LinkPath(r fleet.RunnerID) string { return "/v1/runners/" + url.PathEscape(string(r)) + "/link" }

// ExchangePath is where a runner exchanges frames over plain HTTP. The query
// parameter "channel" names the channel.
func ExchangePath(r fleet.RunnerID) string {
	return "/v1/runners/" + url.PathEscape(string(r)) + "/exchange"
}

// BlobPath is where a runner fetches and stores a blob.
func BlobPath(r fleet.RunnerID, d fleet.Digest) string {
	return "/v1/runners/" + url.PathEscape(string(r)) + "/blobs/" + string(d)
}

// The channels of an exchange.
const (
	ChannelOpen = "open" // the handshake: no body gives a challenge, a hello gives a welcome
	ChannelPush = "push" // everything that the runner says
	ChannelPoll = "poll" // held until the hub has something to say
)

// Headers of requests and answers.
const (
	SessionHeader = "Tugline-Session" // of an exchange: the session, or the handshake in progress
	LeaderHeader  = "Tugline-Leader"  // of a refusal: base URL of the hub that leads
	CodeHeader    = "Tugline-Code"    // of a refusal: its code, for a HEAD has no body
	OffsetHeader  = "Tugline-Offset"  // of a blob answer: bytes that are durable, which is what to send next
)

// Bounds of the HTTP side.
const (
	MaxExchange    = 4 << 20          // bytes of an exchange's body, either way
	MaxPart        = 8 << 20          // bytes of one part of a blob
	MaxEnrol       = 64 << 10         // bytes of an enrolment
	PollHold       = 20 * time.Second // the hub answers a poll after this at the latest
	HandshakeTime  = 10 * time.Second // for the runner's next step while it shakes hands
	OutputInFlight = 8                // output frames that may be unacknowledged on a link
	ReportInFlight = 4                // reports that may be unacknowledged on a link
)

// Problem is the body of every refusal over HTTP: an RFC 9457 problem document.
type Problem struct {
	Title  string     `json:"title"`
	Status int        `json:"status"`
	Detail string     `json:"detail,omitempty"`
	Code   fleet.Code `json:"code"`
	Leader string     `json:"leader,omitempty"` // base URL of the hub that leads, where this one does not
	Hubs   []string   `json:"hubs,omitempty"`   // base URLs of all hubs
}
