package runner

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestAccountsAreWatched: another account in a CLI's own store has the CLIs looked for
// anew, a token that was renewed has not.
func TestAccountsAreWatched(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, name := range []string{"CODEX_HOME", "CODEX_API_KEY"} {
		t.Setenv(name, "")
	}
	sign := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(home, ".codex", "auth.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(home, ".codex"), 0o700); err != nil {
		t.Fatal(err)
	}
	sign(`{"tokens":{"account_id":"a","access_token":"1"}}`)
	synctest.Test(t, func(t *testing.T) {
		r := &Runner{log: slog.New(slog.DiscardHandler), detectNow: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.watchAccounts(ctx) }()
		for _, step := range []struct {
			name, text string
			want       int
		}{
			{"nothing changes", `{"tokens":{"account_id":"a","access_token":"1"}}`, 0},
			{"a token is renewed", `{"tokens":{"account_id":"a","access_token":"2"}}`, 0},
			{"another account", `{"tokens":{"account_id":"b","access_token":"3"}}`, 1},
			{"and nothing more", `{"tokens":{"account_id":"b","access_token":"3"}}`, 0},
			{"a key in its place", `{"OPENAI_API_KEY":"sk-one-0123456789"}`, 1},
		} {
			synctest.Wait()
			sign(step.text)
			time.Sleep(accountEvery + time.Second)
			if got := len(r.detectNow); got != step.want {
				t.Errorf("%s: asked to look %d times, want %d", step.name, got, step.want)
			}
			for len(r.detectNow) > 0 {
				<-r.detectNow
			}
		}
		cancel()
		<-done
	})
}
