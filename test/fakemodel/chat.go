package fakemodel

// chat speaks OpenAI Chat Completions.
type chat struct{}

func (chat) protocol() Protocol { return Chat }

func (chat) refusal(kind, message string) obj {
	return obj{"error": obj{"message": message, "type": kind, "param": nil, "code": nil}}
}

func (chat) tools(body obj) toolbox {
	box := toolbox{}
	list, _ := body["tools"].([]any)
	for _, x := range list {
		t, _ := x.(obj)
		f, _ := t["function"].(obj)
		name, _ := f["name"].(string)
		box.add(name, "", false, f["parameters"])
	}
	return box
}

func (chat) answer(a answer) ([]frame, obj) {
	id := a.id("chatcmpl")
	head := func(object string, choices []obj) obj {
		return obj{"id": id, "object": object, "created": 1, "model": a.model, "choices": choices}
	}
	var frames []frame
	chunk := func(paced bool, delta obj, finish any) {
		c := obj{"index": 0, "delta": delta, "finish_reason": finish}
		frames = append(frames, frame{data: head("chat.completion.chunk", []obj{c}), paced: paced})
	}
	message := obj{"role": "assistant"}
	said, thought, calls, finish := "", "", []obj{}, "stop"
	chunk(false, obj{"role": "assistant", "content": ""}, nil)
	for _, p := range a.parts {
		if p.call == nil {
			for _, piece := range pieces(p.think) {
				chunk(true, obj{"reasoning_content": piece}, nil)
			}
			for _, piece := range pieces(p.say) {
				chunk(true, obj{"content": piece}, nil)
			}
			said, thought = said+p.say, thought+p.think
			continue
		}
		callID, args := a.id("call"), p.call.argsJSON()
		piece := func(o obj) obj { o["index"] = len(calls); return obj{"tool_calls": []obj{o}} }
		chunk(false, piece(obj{"id": callID, "type": "function", "function": obj{"name": p.call.name, "arguments": ""}}), nil)
		chunk(false, piece(obj{"function": obj{"arguments": args}}), nil)
		calls = append(calls, obj{"id": callID, "type": "function", "function": obj{"name": p.call.name, "arguments": args}})
		finish = "tool_calls"
	}
	chunk(false, obj{}, finish)
	usage := obj{
		"prompt_tokens": a.in, "prompt_tokens_details": obj{"cached_tokens": 0},
		"completion_tokens": outTokens, "completion_tokens_details": obj{"reasoning_tokens": 0},
		"total_tokens": a.in + outTokens,
	}
	last := head("chat.completion.chunk", []obj{})
	last["usage"] = usage
	frames = append(frames, frame{data: last}, frame{data: "[DONE]"})

	message["content"] = said
	if thought != "" {
		message["reasoning_content"] = thought
	}
	if len(calls) > 0 {
		message["tool_calls"] = calls
	}
	whole := head("chat.completion", []obj{{"index": 0, "message": message, "finish_reason": finish}})
	whole["usage"] = usage
	return frames, whole
}

func (chat) failed(a answer, e any) []frame {
	frames, _ := chat{}.answer(answer{id: a.id, model: a.model})
	return []frame{frames[0], {data: obj{"error": e}}}
}
