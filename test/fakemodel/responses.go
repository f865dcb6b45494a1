package fakemodel

// responses speaks OpenAI Responses.
type responses struct{}

func (responses) protocol() Protocol { return Responses }

func (responses) refusal(kind, message string) obj {
	return obj{"error": obj{"message": message, "type": kind, "param": nil, "code": nil}}
}

// tools also looks into namespaces, one level deep.
func (responses) tools(body obj) toolbox {
	box := toolbox{}
	list, _ := body["tools"].([]any)
	for _, x := range list {
		t, _ := x.(obj)
		kind, _ := t["type"].(string)
		name, _ := t["name"].(string)
		switch kind {
		case "function", "custom":
			box.add(name, "", kind == "custom", t["parameters"])
		case "namespace":
			inner, _ := t["tools"].([]any)
			for _, y := range inner {
				u, _ := y.(obj)
				n, _ := u["name"].(string)
				box.add(n, name, u["type"] == "custom", u["parameters"])
			}
		}
	}
	return box
}

func (responses) answer(a answer) ([]frame, obj) {
	s := &responseStream{head: responseHead(a)}
	s.put("response.created", obj{"response": s.head("in_progress")})
	s.put("response.in_progress", obj{"response": s.head("in_progress")})
	for _, p := range a.parts {
		switch {
		case p.call != nil && p.call.freeform:
			s.freeform(a.id("ctc"), a.id("call"), *p.call)
		case p.call != nil:
			s.function(a.id("fc"), a.id("call"), *p.call)
		case p.think != "":
			s.thought(a.id("rs"), p.think)
		default:
			s.message(a.id("msg"), p.say)
		}
	}
	whole := s.head("completed")
	whole["output"] = s.output
	whole["usage"] = obj{
		"input_tokens": a.in, "input_tokens_details": obj{"cached_tokens": 0},
		"output_tokens": outTokens, "output_tokens_details": obj{"reasoning_tokens": 0},
		"total_tokens": a.in + outTokens,
	}
	s.put("response.completed", obj{"response": whole})
	return s.frames, whole
}

func (responses) failed(a answer, e any) []frame {
	s := &responseStream{head: responseHead(a)}
	s.put("response.created", obj{"response": s.head("in_progress")})
	r := s.head("failed")
	r["error"] = e
	s.put("response.failed", obj{"response": r})
	return s.frames
}

func responseHead(a answer) func(status string) obj {
	id := a.id("resp")
	return func(status string) obj {
		return obj{"id": id, "object": "response", "created_at": 1, "status": status, "model": a.model, "output": []obj{}}
	}
}

// responseStream collects the events of one response, numbered.
type responseStream struct {
	head   func(status string) obj
	frames []frame
	output []obj
}

func (s *responseStream) put(kind string, data obj) {
	data["type"] = kind
	data["sequence_number"] = len(s.frames)
	s.frames = append(s.frames, frame{event: kind, data: data})
}

// delta adds a piece that belongs to the output item being made.
func (s *responseStream) delta(kind, id string, paced bool, more obj) {
	more["item_id"] = id
	more["output_index"] = len(s.output)
	s.put(kind, more)
	s.frames[len(s.frames)-1].paced = paced
}

func (s *responseStream) begin(item obj) {
	s.put("response.output_item.added", obj{"output_index": len(s.output), "item": item})
}

func (s *responseStream) end(item obj) {
	s.put("response.output_item.done", obj{"output_index": len(s.output), "item": item})
	s.output = append(s.output, item)
}

func (s *responseStream) function(id, callID string, c call) {
	item := func(status, args string) obj {
		o := obj{"id": id, "type": "function_call", "status": status, "call_id": callID, "name": c.name, "arguments": args}
		if c.namespace != "" {
			o["namespace"] = c.namespace
		}
		return o
	}
	args := c.argsJSON()
	s.begin(item("in_progress", ""))
	s.delta("response.function_call_arguments.delta", id, false, obj{"delta": args})
	s.delta("response.function_call_arguments.done", id, false, obj{"arguments": args})
	s.end(item("completed", args))
}

func (s *responseStream) freeform(id, callID string, c call) {
	item := func(status, input string) obj {
		return obj{"id": id, "type": "custom_tool_call", "status": status, "call_id": callID, "name": c.name, "input": input}
	}
	s.begin(item("in_progress", ""))
	for _, p := range pieces(c.input) {
		s.delta("response.custom_tool_call_input.delta", id, false, obj{"delta": p})
	}
	s.delta("response.custom_tool_call_input.done", id, false, obj{"input": c.input})
	s.end(item("completed", c.input))
}

func (s *responseStream) thought(id, words string) {
	part := func(text string) obj { return obj{"type": "summary_text", "text": text} }
	s.begin(obj{"id": id, "type": "reasoning", "summary": []obj{}})
	s.delta("response.reasoning_summary_part.added", id, false, obj{"summary_index": 0, "part": part("")})
	for _, p := range pieces(words) {
		s.delta("response.reasoning_summary_text.delta", id, true, obj{"summary_index": 0, "delta": p})
	}
	s.delta("response.reasoning_summary_text.done", id, false, obj{"summary_index": 0, "text": words})
	s.delta("response.reasoning_summary_part.done", id, false, obj{"summary_index": 0, "part": part(words)})
	s.end(obj{"id": id, "type": "reasoning", "summary": []obj{part(words)}, "encrypted_content": "c2VhbGVk"})
}

func (s *responseStream) message(id, words string) {
	part := func(text string) obj { return obj{"type": "output_text", "text": text, "annotations": []obj{}} }
	item := func(status string, content []obj) obj {
		return obj{"id": id, "type": "message", "role": "assistant", "status": status, "content": content}
	}
	s.begin(item("in_progress", []obj{}))
	s.delta("response.content_part.added", id, false, obj{"content_index": 0, "part": part("")})
	for _, p := range pieces(words) {
		s.delta("response.output_text.delta", id, true, obj{"content_index": 0, "delta": p})
	}
	s.delta("response.output_text.done", id, false, obj{"content_index": 0, "text": words})
	s.delta("response.content_part.done", id, false, obj{"content_index": 0, "part": part(words)})
	s.end(item("completed", []obj{part(words)}))
}
