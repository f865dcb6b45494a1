package fakemodel_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/test/fakemodel"
)

func TestBuiltinScenariosArePlayable(t *testing.T) {
	names := fakemodel.Names()
	if len(names) == 0 {
		t.Fatal("there are none")
	}
	for _, name := range names {
		sc, ok := fakemodel.Builtin(name)
		if !ok {
			t.Errorf("%s is listed and not there", name)
		}
		if err := sc.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if sc.About == "" {
			t.Errorf("%s does not say what it is about", name)
		}
	}
}

func TestAddRefusesWhatCannotBePlayed(t *testing.T) {
	s := fakemodel.Start(t)
	say := fakemodel.Item{Say: "x"}
	tests := []struct {
		name string
		sc   fakemodel.Scenario
		err  string
	}{
		{"no steps", fakemodel.Scenario{}, "no steps"},
		{"empty step", fakemodel.Scenario{Steps: []fakemodel.Step{{}}}, "neither items nor a fault"},
		{"negative repeat", fakemodel.Scenario{Steps: []fakemodel.Step{{Items: []fakemodel.Item{say}, Repeat: -2}}}, "below -1"},
		{"two things in one item", fakemodel.Scenario{Steps: []fakemodel.Step{{Items: []fakemodel.Item{{Say: "x", Run: "y"}}}}}, "got 2"},
		{"file without path", fakemodel.Scenario{Steps: []fakemodel.Step{{Items: []fakemodel.Item{{Write: &fakemodel.File{}}}}}}, "without a path"},
	}
	for _, tt := range tests {
		if err := s.Add("mine", tt.sc); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want an error with %q", tt.name, err, tt.err)
		}
	}
}

func TestOwnScenarioWithRepeatNonceAndPace(t *testing.T) {
	each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
		err := s.Add("mine", fakemodel.Scenario{Steps: []fakemodel.Step{
			{Items: []fakemodel.Item{{Say: "again, {nonce}"}}, Repeat: 1},
			{Items: []fakemodel.Item{{Say: "päce, päce, päce, päce, päce"}}, Delay: 10 * time.Millisecond, First: 10 * time.Millisecond, Pace: 10 * time.Millisecond},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"again, n7", "again, n7", "päce, päce, päce, päce, päce"} {
			begun := time.Now()
			if got := c.ask(t, s.URL("mine", "n7"), "x").Said; got != want {
				t.Errorf("answer %d is %q, want %q", i, got, want)
			}
			// Twenty-eight characters are three pieces: five pauses in all.
			if took := time.Since(begun); i == 2 && took < 50*time.Millisecond {
				t.Errorf("the paced answer took %v, want 50 ms at least", took)
			}
		}
	})
}

func TestStepsOfOneClient(t *testing.T) {
	each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
		other := fakemodel.Chat
		if c.protocol == fakemodel.Chat {
			other = fakemodel.Messages
		}
		words := func(w string) []fakemodel.Item { return []fakemodel.Item{{Say: w}} }
		err := s.Add("mine", fakemodel.Scenario{Steps: []fakemodel.Step{
			{Items: words("to another protocol"), Protocol: other, Repeat: -1},
			{Items: words("to this one"), Protocol: c.protocol},
			{Items: words("to another account"), Key: fakemodel.GoodKey + "-two", Repeat: -1},
			{Items: words("to this one, for ever"), Key: fakemodel.GoodKey, Repeat: -1},
			{Items: words("to whoever comes then")},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"to this one", "to this one, for ever", "to this one, for ever"} {
			if got := c.ask(t, s.URL("mine", "n"), "x").Said; got != want {
				t.Errorf("answer %d is %q, want %q", i, got, want)
			}
		}
		res := c.post(t, s.URL("mine", "n"), fakemodel.GoodKey+"-two", c.body(false, true, "x"))
		if b, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(b), "to whoever comes then") {
			t.Errorf("the other account is told %s (%v)", b, err)
		}
	})
}

func TestScriptOfThePrompt(t *testing.T) {
	each(t, 0, func(t *testing.T, s *fakemodel.Server, c client) {
		at := s.URL(fakemodel.Prompted, "an-account")
		for _, nonce := range []string{"a", "b"} {
			c.ask(t, at, "Look at this. "+fakemodel.Prompt("success", nonce))
			if n := s.Served("success", nonce); n != 1 {
				t.Errorf("the script answered %d requests of %s, want 1", n, nonce)
			}
		}
		if got := c.ask(t, at, "Look at this.").Said; got != "No script is named." {
			t.Errorf("without a name it says %q", got)
		}
	})
}

func TestUsageLimitEndsWhenTold(t *testing.T) {
	s := fakemodel.Start(t)
	end := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	if err := s.Add("mine", fakemodel.Scenario{Steps: []fakemodel.Step{fakemodel.UsageLimit(end)}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients {
		for range 2 {
			res := c.post(t, s.URL("mine", string(c.protocol)), fakemodel.GoodKey, c.body(true, true, "x"))
			b, err := io.ReadAll(res.Body)
			told := string(b) + fmt.Sprint(res.Header)
			if err != nil || res.StatusCode != 429 || (c.protocol != fakemodel.Chat) != strings.Contains(told, fmt.Sprint(end.Unix())) {
				t.Errorf("%s: status %d (%v): %s", c.protocol, res.StatusCode, err, told)
			}
		}
	}
}

func TestListenTakesLoopbackOnly(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "localhost:0", "192.0.2.1:0", "nonsense"} {
		if s, err := fakemodel.Listen(addr); err == nil {
			s.Close()
			t.Errorf("listening on %s succeeded", addr)
		}
	}
}

func TestRecordIsBounded(t *testing.T) {
	s := fakemodel.Start(t)
	defer http.DefaultClient.CloseIdleConnections()
	send := func(nonce, body string) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL("success", nonce)+"/v1/messages/count_tokens", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", fakemodel.GoodKey)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	filler := strings.Repeat("f", 12<<20)
	for range 7 {
		send("large", filler)
	}
	if n := len(s.Requests("success", "large")); n != 5 || s.Dropped() != 2 {
		t.Errorf("of 7 requests of 12 MiB %d are kept and %d dropped, want 5 and 2", n, s.Dropped())
	}
	for range 1100 {
		send("small", "")
	}
	if n := len(s.Requests("success", "small")); n != 1024 || s.Dropped() != 7+76 {
		t.Errorf("of 1,100 requests %d are kept and %d in all dropped, want 1,024 and 83", n, s.Dropped())
	}
}
