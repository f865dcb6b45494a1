package fakemodel

import (
	"encoding/json"
	"net/http"
	"strings"
)

// frame is one server-sent event.
type frame struct {
	event string // "" sends no event line
	data  any    // a string is sent as it is
	paced bool   // a piece of text: the step's pace comes before it
}

// playStream sends the frames, with the fault of the step where it has one. The
// opening frame always goes out, so that a broken stream looks like one.
func playStream(w http.ResponseWriter, r *http.Request, step Step, f *Fault, frames []frame) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	end := len(frames)
	if f != nil && (f.Disconnect || f.Truncate) {
		end /= 2
		if f.After > 0 {
			end = f.After
		}
		end = min(max(1, end), len(frames)-1)
	}
	if f != nil && f.Hang {
		end = 1
	}
	for i, fr := range frames[:end] {
		if i == 1 && !pause(r, step.First) {
			return
		}
		if fr.paced && !pause(r, step.Pace) {
			return
		}
		if _, err := w.Write(fr.encode()); err != nil {
			return // the client left, which is its right
		}
		if flush.Flush() != nil {
			return
		}
	}
	switch {
	case f == nil:
	case f.Hang:
		<-r.Context().Done()
	case f.Disconnect:
		panic(http.ErrAbortHandler) // cuts the connection without a log line
	}
}

func (f frame) encode() []byte {
	var b strings.Builder
	if f.event != "" {
		b.WriteString("event: " + f.event + "\n")
	}
	data, ok := f.data.(string)
	if !ok {
		j, err := json.Marshal(f.data)
		if err != nil {
			panic("fakemodel: a frame that is no JSON: " + err.Error())
		}
		data = string(j)
	}
	b.WriteString("data: " + data + "\n\n")
	return []byte(b.String())
}

// pieces cuts a text as a model's stream does, never inside a character.
func pieces(s string) []string {
	var out []string
	runes := []rune(s)
	for len(runes) > 0 {
		n := min(12, len(runes))
		out = append(out, string(runes[:n]))
		runes = runes[n:]
	}
	return out
}
