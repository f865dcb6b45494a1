package api

// IndexHeader names the entry of the log that an answer is at least as new as. In a
// request that reads, it asks for an answer that is; a node that cannot give one
// within seconds refuses with unavailable.
const IndexHeader = "X-Tugline-Index"

// Seen says which hub node saw the runners' connections that an answer is made of,
// and how long ago it told so.
type Seen struct {
	From string `json:"presence_from"`   // id of the node; empty: unknown, the leader has not been heard lately
	Age  int64  `json:"presence_age_ms"` // 0 on the node that saw them itself
}
