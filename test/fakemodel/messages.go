package fakemodel

// messages speaks Anthropic Messages.
type messages struct{}

func (messages) protocol() Protocol { return Messages }

func (messages) refusal(kind, message string) obj {
	return obj{"type": "error", "error": obj{"type": kind, "message": message}, "request_id": "req_scripted"}
}

func (messages) tools(body obj) toolbox {
	box := toolbox{}
	list, _ := body["tools"].([]any)
	for _, x := range list {
		t, _ := x.(obj)
		name, _ := t["name"].(string)
		box.add(name, "", false, t["input_schema"])
	}
	return box
}

func (messages) answer(a answer) ([]frame, obj) {
	s := &messageStream{}
	usage := func(out int) obj {
		return obj{
			"input_tokens": a.in, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
			"output_tokens": out,
		}
	}
	id := a.id("msg")
	head := func(content []obj, stop any, out int) obj {
		return obj{
			"id": id, "type": "message", "role": "assistant", "model": a.model, "content": content,
			"stop_reason": stop, "stop_sequence": nil, "usage": usage(out),
		}
	}
	// The opening counts one token, as the provider does; the closing has the sum.
	s.put("message_start", obj{"message": head([]obj{}, nil, 1)})
	stop := "end_turn"
	for _, p := range a.parts {
		switch {
		case p.call != nil:
			s.toolUse(a.id("toolu"), *p.call)
			stop = "tool_use"
		case p.think != "":
			s.thinking(p.think)
		default:
			s.text(p.say)
		}
	}
	s.put("message_delta", obj{"delta": obj{"stop_reason": stop, "stop_sequence": nil}, "usage": usage(outTokens)})
	s.put("message_stop", obj{})
	return s.frames, head(s.content, stop, outTokens)
}

func (messages) failed(a answer, e any) []frame {
	frames, _ := messages{}.answer(answer{id: a.id, model: a.model, in: a.in})
	return []frame{frames[0], {event: "error", data: obj{"type": "error", "error": e}}}
}

// messageStream collects the events and the content blocks of one message.
type messageStream struct {
	frames  []frame
	content []obj
}

func (s *messageStream) put(kind string, data obj) {
	data["type"] = kind
	s.frames = append(s.frames, frame{event: kind, data: data})
}

// block sends one content block: its empty shape, its deltas, its end.
func (s *messageStream) block(empty, full obj, paced bool, deltas ...obj) {
	i := len(s.content)
	s.put("content_block_start", obj{"index": i, "content_block": empty})
	for _, d := range deltas {
		s.put("content_block_delta", obj{"index": i, "delta": d})
		s.frames[len(s.frames)-1].paced = paced
	}
	s.put("content_block_stop", obj{"index": i})
	s.content = append(s.content, full)
}

func (s *messageStream) text(words string) {
	var deltas []obj
	for _, p := range pieces(words) {
		deltas = append(deltas, obj{"type": "text_delta", "text": p})
	}
	s.block(obj{"type": "text", "text": ""}, obj{"type": "text", "text": words}, true, deltas...)
}

func (s *messageStream) thinking(words string) {
	const seal = "c2VhbGVk"
	var deltas []obj
	for _, p := range pieces(words) {
		deltas = append(deltas, obj{"type": "thinking_delta", "thinking": p})
	}
	deltas = append(deltas, obj{"type": "signature_delta", "signature": seal})
	s.block(obj{"type": "thinking", "thinking": "", "signature": ""},
		obj{"type": "thinking", "thinking": words, "signature": seal}, true, deltas...)
}

func (s *messageStream) toolUse(id string, c call) {
	shape := func(input any) obj { return obj{"type": "tool_use", "id": id, "name": c.name, "input": input} }
	s.block(shape(obj{}), shape(c.args), false, obj{"type": "input_json_delta", "partial_json": c.argsJSON()})
}
