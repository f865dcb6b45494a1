package fakemodel_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/test/fakemodel"
)

type obj = map[string]any

// client speaks one protocol as plainly as it can be spoken, and reads a stream
// back into the words and calls that a real client would see in it.
type client struct {
	protocol fakemodel.Protocol
	path     string
	tools    []obj
	// read folds the stream's events into what was said, thought and called.
	read func(events []event) heard
}

type event struct {
	name string
	data string
}

// heard is what a client makes of a stream.
type heard struct {
	Said, Thought string
	Calls         []called
	Ended         bool // the protocol's own end was there
	In, Out       float64
}

type called struct{ Name, Args string }

func schema(names ...string) obj {
	props := obj{}
	for _, n := range names {
		props[n] = obj{"type": "string"}
	}
	return obj{"type": "object", "properties": props}
}

var clients = []client{
	{
		protocol: fakemodel.Responses, path: "/v1/responses", read: readResponses,
		tools: []obj{
			{"type": "function", "name": "exec_command", "parameters": schema("cmd", "yield_time_ms")},
			{"type": "custom", "name": "apply_patch"},
		},
	},
	{
		protocol: fakemodel.Chat, path: "/v1/chat/completions", read: readChat,
		tools: []obj{
			{"type": "function", "function": obj{"name": "bash", "parameters": schema("command", "description")}},
			{"type": "function", "function": obj{"name": "write", "parameters": schema("filePath", "content")}},
		},
	},
	{
		protocol: fakemodel.Messages, path: "/v1/messages", read: readMessages,
		tools: []obj{
			{"name": "Bash", "input_schema": schema("command", "description", "timeout")},
			{"name": "Write", "input_schema": schema("file_path", "content")},
		},
	},
}

// body is a request whose words are in the place where the protocol has them.
func (c client) body(stream, tools bool, words ...string) obj {
	b := obj{"model": "fake-model", "stream": stream}
	if tools {
		b["tools"] = c.tools
	}
	var list []obj
	for _, w := range words {
		list = append(list, obj{"role": "user", "content": w})
	}
	if c.protocol == fakemodel.Responses {
		b["input"] = list
	} else {
		b["messages"] = list
	}
	return b
}

func (c client) post(t *testing.T, base, key string, body obj) *http.Response {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+c.path, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if c.protocol == fakemodel.Messages {
		req.Header.Set("X-Api-Key", key)
	} else {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// ask sends words with a good key and reads the stream to its end.
func (c client) ask(t *testing.T, base string, words ...string) heard {
	t.Helper()
	res := c.post(t, base, fakemodel.GoodKey, c.body(true, true, words...))
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("%s: status %d: %s", c.protocol, res.StatusCode, b)
	}
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("%s: content type %q", c.protocol, got)
	}
	events, err := readEvents(res.Body)
	if err != nil {
		t.Fatalf("%s: %v", c.protocol, err)
	}
	return c.read(events)
}

func readEvents(r io.Reader) ([]event, error) {
	var out []event
	var e event
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		name, value, _ := strings.Cut(sc.Text(), ": ")
		switch name {
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			out = append(out, e)
			e = event{}
		default:
			return out, fmt.Errorf("line %q is no part of an event stream", sc.Text())
		}
	}
	return out, sc.Err()
}

// parsed is the event's document. Its type must be the event's name, if it has one.
func (e event) parsed() obj {
	var o obj
	if err := json.Unmarshal([]byte(e.data), &o); err != nil {
		panic(fmt.Sprintf("event %q: %v", e.data, err))
	}
	if e.name != "" && o["type"] != e.name {
		panic(fmt.Sprintf("event %q has the type %v", e.name, o["type"]))
	}
	return o
}

func str(o obj, key string) string { s, _ := o[key].(string); return s }
func sub(o obj, key string) obj    { s, _ := o[key].(obj); return s }

func readResponses(events []event) heard {
	var h heard
	for i, e := range events {
		o := e.parsed()
		if o["sequence_number"] != float64(i) {
			panic(fmt.Sprintf("event %d has the number %v", i, o["sequence_number"]))
		}
		switch e.name {
		case "response.output_text.delta":
			h.Said += str(o, "delta")
		case "response.reasoning_summary_text.delta":
			h.Thought += str(o, "delta")
		case "response.output_item.done":
			item := sub(o, "item")
			switch str(item, "type") {
			case "function_call":
				h.Calls = append(h.Calls, called{str(item, "name"), str(item, "arguments")})
			case "custom_tool_call":
				h.Calls = append(h.Calls, called{str(item, "name"), str(item, "input")})
			}
		case "response.completed":
			h.Ended = true
			u := sub(sub(o, "response"), "usage")
			h.In, h.Out = u["input_tokens"].(float64), u["output_tokens"].(float64)
		}
	}
	return h
}

func readChat(events []event) heard {
	var h heard
	for _, e := range events {
		if e.data == "[DONE]" {
			h.Ended = true
			continue
		}
		o := e.parsed()
		if u := sub(o, "usage"); u != nil {
			h.In, h.Out = u["prompt_tokens"].(float64), u["completion_tokens"].(float64)
		}
		choices, _ := o["choices"].([]any)
		if len(choices) == 0 {
			continue
		}
		delta := sub(choices[0].(obj), "delta")
		h.Said += str(delta, "content")
		h.Thought += str(delta, "reasoning_content")
		calls, _ := delta["tool_calls"].([]any)
		for _, x := range calls {
			c := x.(obj)
			i := int(c["index"].(float64))
			if i == len(h.Calls) {
				h.Calls = append(h.Calls, called{Name: str(sub(c, "function"), "name")})
			}
			h.Calls[i].Args += str(sub(c, "function"), "arguments")
		}
	}
	return h
}

func readMessages(events []event) heard {
	var h heard
	open := -1
	for _, e := range events {
		o := e.parsed()
		switch e.name {
		case "content_block_start":
			open++
			if o["index"] != float64(open) {
				panic(fmt.Sprintf("block %d has the index %v", open, o["index"]))
			}
			if b := sub(o, "content_block"); b["type"] == "tool_use" {
				h.Calls = append(h.Calls, called{Name: str(b, "name")})
			}
		case "content_block_delta":
			d := sub(o, "delta")
			h.Said += str(d, "text")
			h.Thought += str(d, "thinking")
			if d["type"] == "input_json_delta" {
				h.Calls[len(h.Calls)-1].Args += str(d, "partial_json")
			}
		case "message_delta":
			u := sub(o, "usage")
			h.In, h.Out = u["input_tokens"].(float64), u["output_tokens"].(float64)
		case "message_stop":
			h.Ended = true
		}
	}
	return h
}

// soon bounds a wait that must not last.
const soon = 5 * time.Second
