package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSizesAreRead(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "17": 17, "9007199254740993": 9007199254740993, "4B": 4, "1KiB": 1 << 10, "500MiB": 500 << 20, "20GiB": 20 << 30, "20 GiB": 20 << 30, "1.5TiB": 3 << 39, "2GB": 2e9, "3TB": 3e12,
	} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "GiB", "-1", "+1", "1e3", "1G", "1gib", "NaN", "Inf", "1.2.3", "1 2", "99999999999TiB", "0x10", "ten"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("%q was read as %d", s, got)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"", "1", "20GiB", "1.5TB", "..B", "iB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseSize(s); err == nil && n < 0 {
			t.Errorf("%q is %d", s, n)
		}
	})
}

func TestSettingsOfPlacement(t *testing.T) {
	if f := FloorsOf(nil); f != (Floors{10 << 30, 20 << 30}) {
		t.Errorf("without settings: %+v", f)
	}
	if f := FloorsOf(map[string]string{SettingFloorSelect: "1GiB", SettingFloorStart: "much"}); f != (Floors{1 << 30, 20 << 30}) {
		t.Errorf("with one that cannot be read: %+v", f)
	}
	for s, want := range map[string]time.Duration{"": time.Minute, "5s": 5 * time.Second, "10ms": time.Minute, "2h": time.Minute, "x": time.Minute} {
		if got := RetryPauseOf(map[string]string{SettingRetryPause: s}); got != want {
			t.Errorf("retry_pause %q is %s; want %s", s, got, want)
		}
	}
}

func TestChoicesAreReadAndFollowed(t *testing.T) {
	list, err := ParseChoices("codex:gpt-5.2, claude:opus,claude,opencode:anthropic/x:free")
	want := []Choice{{"codex", "gpt-5.2"}, {"claude", "opus"}, {"claude", ""}, {"opencode", "anthropic/x:free"}}
	if diff := cmp.Diff(want, list); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	for _, s := range []string{"", ",", "codex:", ":x", "a b", "codex,,claude"} {
		if _, err := ParseChoices(s); err == nil {
			t.Errorf("%q was read", s)
		}
	}
	for _, c := range []struct {
		own  Choice
		left int
	}{
		{Choice{"codex", "gpt-5.2"}, 3}, {Choice{"codex", ""}, 3}, {Choice{"codex", "other"}, 0}, {Choice{"claude", ""}, 1},
		{Choice{"claude", "opus"}, 2}, {Choice{"claude", "haiku"}, 1}, {Choice{"opencode", "x/y"}, 0}, {Choice{"exec", ""}, 0},
	} {
		if got := AfterOwn(c.own, list); len(got) != c.left {
			t.Errorf("behind %s: %v; want %d", c.own, got, c.left)
		}
	}
}
