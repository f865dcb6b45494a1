package fakemodel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"tugline.dev/tugline/test/fakemodel"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultClient.CloseIdleConnections()
	}))
}

// each runs a test once in every protocol, with a server of its own that is
// expected to end with the given number of complaints.
func each(t *testing.T, complaints int, f func(t *testing.T, s *fakemodel.Server, c client)) {
	for _, c := range clients {
		t.Run(string(c.protocol), func(t *testing.T) {
			s, err := fakemodel.Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				http.DefaultClient.CloseIdleConnections()
				s.Close()
				if got := s.Complaints(); len(got) != complaints {
					t.Errorf("%d complaints, want %d: %q", len(got), complaints, got)
				}
			})
			f(t, s, c)
		})
	}
}

func TestSuccessInEveryProtocol(t *testing.T) {
	const dir = "/srv/some where"
	words := "<cwd>" + dir + "</cwd> Working directory: " + dir + "\nmake the file"
	patch := "*** Begin Patch\n*** Add File: hello.txt\n+hello from the agent\n*** End Patch"
	wantWrite := map[fakemodel.Protocol]called{
		fakemodel.Responses: {"apply_patch", patch},
		fakemodel.Chat:      {"write", `{"content":"hello from the agent\n","filePath":"/srv/some where/hello.txt"}`},
		fakemodel.Messages:  {"Write", `{"content":"hello from the agent\n","file_path":"/srv/some where/hello.txt"}`},
	}
	wantRun := map[fakemodel.Protocol]called{
		fakemodel.Responses: {"exec_command", `{"cmd":"cat hello.txt \u0026\u0026 ls"}`},
		fakemodel.Chat:      {"bash", `{"command":"cat hello.txt \u0026\u0026 ls","description":"Run a scripted command"}`},
		fakemodel.Messages:  {"Bash", `{"command":"cat hello.txt \u0026\u0026 ls","description":"Run a scripted command"}`},
	}
	each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
		base := s.URL("success", "a")
		want := []heard{
			{Said: "I will create hello.txt.", Thought: "A file is wanted. I write it and look at it.", Calls: []called{wantWrite[c.protocol]}},
			{Calls: []called{wantRun[c.protocol]}},
			{Said: "Done: hello.txt is there."},
			{Said: "There is nothing more to do."},
		}
		for i, w := range want {
			got := c.ask(t, base, words)
			if got.In < 10 || got.Out != 42 {
				t.Errorf("answer %d counts %v tokens in and %v out", i, got.In, got.Out)
			}
			w.Ended, w.In, w.Out = true, got.In, got.Out
			if d := cmp.Diff(w, got); d != "" {
				t.Errorf("answer %d (-want +got):\n%s", i, d)
			}
		}
		if n := s.Served("success", "a"); n != len(want) {
			t.Errorf("%d requests served, want %d", n, len(want))
		}
	})
}

func TestNoncesDoNotDisturbOneAnother(t *testing.T) {
	each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
		c.ask(t, s.URL("text-only", "a"), "x")
		if got := c.ask(t, s.URL("text-only", "b"), "x").Said; got != "This needs no change." {
			t.Errorf("the second run began with %q", got)
		}
		if got := c.ask(t, s.URL("text-only", "a"), "x").Said; got != "I still know my first answer." {
			t.Errorf("the first run went on with %q", got)
		}
	})
}

func TestWithoutAStreamTheAnswerIsTheSame(t *testing.T) {
	each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
		res := c.post(t, s.URL("success", "a"), fakemodel.GoodKey, c.body(false, true, "x"))
		var doc obj
		if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		var said, tool string
		switch c.protocol {
		case fakemodel.Responses:
			out := doc["output"].([]any)
			said = str(out[1].(obj)["content"].([]any)[0].(obj), "text")
			tool = str(out[2].(obj), "name")
		case fakemodel.Chat:
			m := sub(doc["choices"].([]any)[0].(obj), "message")
			said = str(m, "content")
			tool = str(sub(m["tool_calls"].([]any)[0].(obj), "function"), "name")
		case fakemodel.Messages:
			content := doc["content"].([]any)
			said = str(content[1].(obj), "text")
			tool = str(content[2].(obj), "name")
		}
		if said != "I will create hello.txt." || !strings.Contains("apply_patch write Write", tool) || tool == "" {
			t.Errorf("said %q and called %q in %v", said, tool, doc)
		}
	})
}

func TestARequestWithoutToolsLeavesTheScriptWhereItIs(t *testing.T) {
	each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
		base := s.URL("success", "a")
		for range 3 {
			res := c.post(t, base, fakemodel.GoodKey, c.body(true, false, "a title please"))
			events, err := readEvents(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.read(events); got.Said != "A short title" || !got.Ended {
				t.Errorf("side answer %+v", got)
			}
		}
		if got := c.ask(t, base, "x").Said; got != "I will create hello.txt." {
			t.Errorf("after side requests the script began with %q", got)
		}
	})
}

func TestRefusals(t *testing.T) {
	type want struct {
		status       int
		word, header string
	}
	tests := []struct {
		scenario          string
		openAI, anthropic want
	}{
		{"rate-limit", want{429, "rate_limit_exceeded", "1"}, want{429, "rate_limit_error", "1"}},
		{"rate-limit-long", want{429, "rate_limit_exceeded", "3600"}, want{429, "rate_limit_error", "3600"}},
		{"quota", want{429, "insufficient_quota", ""}, want{400, "credit balance is too low", ""}},
		{"usage-limit", want{429, "usage_limit_reached", "?"}, want{429, "rate_limit_error", "3600"}},
		{"usage-limit-free", want{429, "usage_limit_reached", "?"}, want{429, "rate_limit_error", "3600"}},
		{"upgrade-plan", want{403, "Upgrade your plan", ""}, want{403, "Upgrade your plan", ""}},
		{"model-missing", want{404, "model_not_found", ""}, want{404, "not_found_error", ""}},
		{"overloaded", want{503, "server_is_overloaded", ""}, want{529, "overloaded_error", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.scenario, func(t *testing.T) {
			each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
				w := tt.openAI
				if c.protocol == fakemodel.Messages {
					w = tt.anthropic
				}
				// The provider refuses everything, also what asks for a title, and goes on refusing.
				for _, tools := range []bool{true, false, true} {
					res := c.post(t, s.URL(tt.scenario, "a"), fakemodel.GoodKey, c.body(true, tools, "x"))
					body, err := io.ReadAll(res.Body)
					if err != nil {
						t.Fatal(err)
					}
					if res.StatusCode != w.status || !strings.Contains(string(body), w.word) {
						t.Errorf("status %d, %s; want %d with %q", res.StatusCode, body, w.status, w.word)
					}
					if got := res.Header.Get("Retry-After"); w.header != "?" && got != w.header {
						t.Errorf("retry-after %q, want %q", got, w.header)
					}
				}
			})
		})
	}
}

func TestUsageLimitNamesThePlanAndTheTime(t *testing.T) {
	s := fakemodel.Start(t)
	for scenario, plan := range map[string]string{"usage-limit": "plus", "usage-limit-free": "free"} {
		res := clients[0].post(t, s.URL(scenario, "a"), fakemodel.GoodKey, clients[0].body(true, true, "x"))
		var doc obj
		if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		e := sub(doc, "error")
		if e["plan_type"] != plan || e["resets_at"] != float64(fakemodel.LimitResetsAt) {
			t.Errorf("%s: %v", scenario, e)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestFaultsThatPass(t *testing.T) {
	for _, scenario := range []string{"rate-limit-once", "overloaded-once", "server-error-once", "stream-error-once", "disconnect-once", "truncate-once", "truncate-between"} {
		t.Run(scenario, func(t *testing.T) {
			each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
				base := s.URL(scenario, "a")
				res := c.post(t, base, fakemodel.GoodKey, c.body(true, true, "x"))
				if res.StatusCode == http.StatusOK {
					events, err := readEvents(res.Body)
					if c.read(events).Ended {
						t.Error("the stream came to its proper end")
					}
					if (scenario == "disconnect-once") != (err != nil) {
						t.Errorf("reading the stream: %v", err)
					}
					if len(events) < 2 {
						t.Errorf("only %d events before the break", len(events))
					}
				} else if res.StatusCode < 429 {
					t.Errorf("status %d", res.StatusCode)
				}
				if got := c.ask(t, base, "x"); got.Said != "I will create hello.txt." || !got.Ended {
					t.Errorf("the second try gave %+v", got)
				}
			})
		})
	}
}

func TestTruncateBetweenEndsBehindAWholeThought(t *testing.T) {
	s := fakemodel.Start(t)
	defer http.DefaultClient.CloseIdleConnections()
	got := clients[2].ask(t, s.URL("truncate-between", "a"), "x")
	if want := (heard{Thought: "A file is wanted. I write it and look at it."}); !cmp.Equal(want, got) {
		t.Errorf("heard %+v, want %+v", got, want)
	}
}

func TestRefusalTextIsAnOrdinaryAnswer(t *testing.T) {
	each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
		if got := c.ask(t, s.URL("refusal-text", "a"), "x"); got.Said != fakemodel.RefusalText || !got.Ended {
			t.Errorf("got %+v", got)
		}
	})
}

func TestKeys(t *testing.T) {
	tests := []struct {
		key, name string
		status    int
	}{
		{"sk-ok", "sk-ok", 200},
		{"sk-ok-second", "sk-ok-second", 200},
		{"sk-okay", "wrong", 401},
		{"sk-bad", "wrong", 401},
		{"", "missing", 401},
	}
	each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
		for i, tt := range tests {
			nonce := fmt.Sprint(i)
			res := c.post(t, s.URL("success", nonce), tt.key, c.body(true, true, "x"))
			body, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != tt.status {
				t.Errorf("key %q: status %d (%v): %s", tt.key, res.StatusCode, err, body)
			}
			got := s.Requests("success", nonce)
			if len(got) != 1 {
				t.Errorf("key %q: %d requests recorded, want 1", tt.key, len(got))
				continue
			}
			if got[0].Key != tt.name {
				t.Errorf("key %q is recorded as %q, want %q", tt.key, got[0].Key, tt.name)
			}
			for name, values := range got[0].Header {
				if v := strings.Join(values, " "); strings.Contains(v, "sk-") {
					t.Errorf("header %s was kept as %q", name, v)
				}
			}
			if served := s.Served("success", nonce); (served == 1) != (tt.status == 200) {
				t.Errorf("key %q advanced the script to %d", tt.key, served)
			}
		}
	})
}

func TestFollowUpMustCarryTheHistory(t *testing.T) {
	history := []string{"I keep the word heron-a in mind.", "Turn one is done: heron-a.", "written in turn one"}
	ask := func(t *testing.T, s *fakemodel.Server, c client, words ...string) int {
		c.ask(t, s.URL("resume", "a"), "first turn")
		c.ask(t, s.URL("resume", "a"), "first turn")
		return c.post(t, s.URL("resume", "a"), fakemodel.GoodKey, c.body(true, true, words...)).StatusCode
	}
	t.Run("with", func(t *testing.T) {
		each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
			if got := ask(t, s, c, history...); got != 200 {
				t.Errorf("status %d, want 200", got)
			}
		})
	})
	t.Run("without", func(t *testing.T) {
		each(t, 1, func(t *testing.T, s *fakemodel.Server, c client) {
			if got := ask(t, s, c, history[:2]...); got != 400 {
				t.Errorf("status %d, want 400", got)
			}
		})
	})
}

func TestHangLastsUntilTheClientLeaves(t *testing.T) {
	each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		res := c.post(t, s.URL("hang", "a"), fakemodel.GoodKey, c.body(true, true, "x"))
		if err := s.Wait(ctx, "hang", "a", 1); err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 6)
		if _, err := io.ReadFull(res.Body, first); err != nil {
			t.Fatalf("the stream did not open: %v", err)
		}
		res.Body.Close()
		// Close, at the end of the test, waits for the handler: it must see the client go.
	})
}

func TestCloseEndsAHangingAnswer(t *testing.T) {
	s := fakemodel.Start(t)
	c := clients[0]
	res := c.post(t, s.URL("hang", "a"), fakemodel.GoodKey, c.body(true, true, "x"))
	s.Close()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the stream of a closed server ended cleanly")
	}
	if err := s.Wait(t.Context(), "hang", "a", 2); err == nil {
		t.Error("waiting at a closed server succeeded")
	}
}

func TestOtherEndpoints(t *testing.T) {
	s := fakemodel.Start(t)
	defer http.DefaultClient.CloseIdleConnections()
	base := s.URL("success", "a")
	tests := []struct {
		method, url, key string
		status           int
		holds            string
	}{
		{"HEAD", base, "", 200, ""},
		{"GET", base + "/v1/responses", "", 426, "plain HTTP"},
		{"GET", base + "/v1/models", "sk-ok", 200, `"fake-model"`},
		{"GET", base + "/v1/models", "sk-bad", 401, "invalid_api_key"},
		{"POST", base + "/v1/messages/count_tokens", "sk-ok", 200, "input_tokens"},
		{"POST", base + "/v1/messages/count_tokens?beta=true", "sk-bad", 401, "authentication_error"},
		{"POST", base + "/v1/elsewhere", "sk-ok", 404, "/v1/elsewhere"},
	}
	for _, tt := range tests {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, tt.url, strings.NewReader(`{"messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+tt.key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != tt.status || !bytes.Contains(body, []byte(tt.holds)) {
			t.Errorf("%s %s with key %q: status %d (%v): %s; want %d with %q", tt.method, tt.url, tt.key, res.StatusCode, err, body, tt.status, tt.holds)
		}
	}
	var kinds []fakemodel.Kind
	for _, r := range s.Requests("success", "a") {
		kinds = append(kinds, r.Kind)
	}
	want := []fakemodel.Kind{fakemodel.Probe, fakemodel.WebSocket, fakemodel.Models, fakemodel.Refused, fakemodel.Count, fakemodel.Refused, fakemodel.Unknown}
	if d := cmp.Diff(want, kinds); d != "" {
		t.Errorf("recorded kinds (-want +got):\n%s", d)
	}
	if n := s.Served("success", "a"); n != 0 {
		t.Errorf("the script moved on by %d", n)
	}
}

func TestWrongUseIsToldAndComplainedOf(t *testing.T) {
	each(t, 3, func(t *testing.T, s *fakemodel.Server, c client) {
		res := c.post(t, s.URL("no-such-scenario", "a"), fakemodel.GoodKey, c.body(true, true, "x"))
		if body, _ := io.ReadAll(res.Body); res.StatusCode != 404 || !strings.Contains(string(body), "no-such-scenario") {
			t.Errorf("unknown scenario: status %d, %s", res.StatusCode, body)
		}
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL("success", "a")+c.path, strings.NewReader("not JSON"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer sk-ok")
		if res, err = http.DefaultClient.Do(req); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 400 {
			t.Errorf("broken body: status %d", res.StatusCode)
		}
		// A client whose only tool does nothing that the script needs.
		c.tools = c.tools[:0:0]
		switch c.protocol {
		case fakemodel.Chat:
			c.tools = append(c.tools, obj{"type": "function", "function": obj{"name": "paint"}})
		default:
			c.tools = append(c.tools, obj{"type": "function", "name": "paint"})
		}
		if got := c.ask(t, s.URL("command-fails", "a"), "x"); got.Said != "I have no tool for this." {
			t.Errorf("without a shell tool the model said %q", got.Said)
		}
	})
}

// A step that holds is answered when the run is released, not before, and the run of
// another nonce is none of its business.
func TestHold(t *testing.T) {
	each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
		err := s.Add("held", fakemodel.Scenario{Steps: []fakemodel.Step{{Items: []fakemodel.Item{{Say: "At last."}}, Hold: true, Repeat: -1}}})
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan string, 1)
		go func() { defer close(answered); answered <- c.ask(t, s.URL("held", "n1"), "x").Said }()
		if err := s.Wait(t.Context(), "held", "n1", 1); err != nil {
			t.Fatal(err)
		}
		s.Release("held", "n2")
		if got := c.ask(t, s.URL("held", "n2"), "x").Said; got != "At last." {
			t.Errorf("a run that was released before it began got %q", got)
		}
		select {
		case got := <-answered:
			t.Errorf("the held step was answered with %q before its release", got)
		default:
		}
		s.Release("held", "n1")
		s.Release("held", "n1")
		if got := <-answered; got != "At last." {
			t.Errorf("after the release came %q", got)
		}
	})
}
