package consensus

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

func TestRaftLogsThroughSlog(t *testing.T) {
	var out bytes.Buffer
	l := raftLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
	l = l.Named("store").With("peer", "n2")
	l.Debug("chatter")
	l.Info("every start")
	l.Warn("every election", "servers", hclog.Fmt("%d of %d", 1, 3))
	l.Error("trouble")
	l.Log(hclog.Off, "never")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{
		`level=INFO msg="every election" component=raft peer=n2 servers="1 of 3"`,
		`level=ERROR msg=trouble component=raft peer=n2`,
	}
	if len(lines) != len(want) {
		t.Fatalf("logged:\n%s", out.String())
	}
	for i, w := range want {
		if !strings.HasSuffix(lines[i], w) {
			t.Errorf("line %q, want %q", lines[i], w)
		}
	}
	if l.IsDebug() || l.IsInfo() || !l.IsWarn() || l.GetLevel() != hclog.Warn {
		t.Errorf("level %v, want that of the handler", l.GetLevel())
	}
}

func TestQuietByDefault(t *testing.T) {
	cfg, err := (Config{Dir: "d", NodeID: "n", FSM: &ledger{}}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if l := raftLogger(cfg.Logger); l.IsError() || l.GetLevel() != hclog.Off {
		t.Errorf("default logger speaks at %v", l.GetLevel())
	}
}
