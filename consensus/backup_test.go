package consensus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func mustBackup(t testing.TB, n *Node) ([]byte, Backup) {
	t.Helper()
	var out bytes.Buffer
	b, err := n.Backup(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), b
}

// strip takes the indexes off a ledger's entries.
func strip(entries []string) (out []string) {
	for _, e := range entries {
		_, text, _ := strings.Cut(e, " ")
		out = append(out, text)
	}
	return out
}

func TestRestoreSetsTheWholeGroupBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		leader := l.leader()
		for i := range 5 {
			mustPropose(t, leader, fmt.Sprint("old ", i))
		}
		want := l.same()
		file, b := mustBackup(t, l.others(leader)[0])
		if b.Index != leader.Status().AppliedIndex || b.Term != leader.Status().Term {
			t.Errorf("backup %+v of %+v", b, leader.Status())
		}
		behind := l.others(leader)[1]
		l.cut(behind.cfg.NodeID)
		for i := range 100 {
			mustPropose(t, leader, fmt.Sprint("undone ", i))
		}
		before := leader.Status()
		if err := l.others(leader)[0].Restore(t.Context(), bytes.NewReader(file)); !errors.Is(err, ErrNotLeader) {
			t.Errorf("restore on a follower: %v", err)
		}
		stop := make(chan struct{})
		writing := make(chan struct{})
		go func() {
			defer close(writing)
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, _, err := leader.Propose(t.Context(), []byte("meanwhile"))
				if err != nil && !errors.Is(err, ErrUnknown) {
					t.Errorf("propose: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
		}()
		if err := leader.Restore(t.Context(), bytes.NewReader(file)); err != nil {
			t.Fatal(err)
		}
		close(stop)
		<-writing
		after := leader.Status()
		if after.AppliedIndex <= before.AppliedIndex || after.LastIndex <= before.LastIndex || after.Term != before.Term {
			t.Errorf("was %+v, is %+v: want the index to go on", before, after)
		}
		mustPropose(t, leader, "new")
		l.cut()
		time.Sleep(time.Minute)
		got := l.same()
		if n := len(want); len(got) <= n || !slices.Equal(got[:n], want) || strip(got)[len(got)-1] != "new" {
			t.Errorf("state %q, want that of the backup and what came since", got)
		}
		if slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, "undone") }) {
			t.Errorf("state %q holds what was undone", got)
		}
		// It lasts, and a new node gets it too.
		for _, n := range l.others(leader) {
			id := n.cfg.NodeID
			l.close(id)
			l.open(id)
		}
		l.open("d", join)
		if err := l.leader().AddLearner(t.Context(), "d"); err != nil {
			t.Fatal(err)
		}
		mustPropose(t, l.leader(), "last")
		time.Sleep(time.Second)
		if got := strip(l.same()); got[len(got)-1] != "last" || got[0] != "old 0" {
			t.Errorf("state %q", got)
		}
	})
}

// picky is a state machine that looks at backups first.
type picky struct{ ledger }

func (p *picky) Check(r io.Reader) error {
	var entries []string
	if err := json.NewDecoder(r).Decode(&entries); err != nil {
		return err
	}
	if slices.Contains(strip(entries), "from the future") {
		return errors.New("kind 77 is unknown")
	}
	return nil
}

func TestRestoreRefusesDamage(t *testing.T) {
	t.Parallel()
	n := mustOpen(t, t.TempDir(), &picky{})
	mustPropose(t, n, "one")
	file, _ := mustBackup(t, n)
	mustPropose(t, n, "two")
	for name, bad := range map[string][]byte{
		"empty": nil, "cut": file[:len(file)-1], "cut early": file[:20], "other": []byte("PK\x03\x04" + strings.Repeat("x", 100)),
		"newer": bytes.Replace(file, []byte(backupMagic+"\x00\x00\x00\x01"), []byte(backupMagic+"\x00\x00\x00\x02"), 1),
	} {
		if err := n.Restore(t.Context(), bytes.NewReader(bad)); !errors.Is(err, ErrBackup) {
			t.Errorf("%s: %v", name, err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		at := rapid.IntRange(0, len(file)-1).Draw(rt, "at")
		bad := bytes.Clone(file)
		bad[at] ^= byte(rapid.IntRange(1, 255).Draw(rt, "flip"))
		if _, err := ReadBackup(bytes.NewReader(bad), nil); !errors.Is(err, ErrBackup) {
			rt.Errorf("byte %d changed: %v", at, err)
		}
	})
	future := mustOpen(t, t.TempDir(), &ledger{})
	mustPropose(t, future, "from the future")
	unknown, _ := mustBackup(t, future)
	if err := n.Restore(t.Context(), bytes.NewReader(unknown)); err == nil || !strings.Contains(err.Error(), "kind 77") {
		t.Errorf("a backup of a newer version: %v", err)
	}
	if got := strip(n.cfg.FSM.(*picky).all()); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("refused backups left %q", got)
	}
	if err := n.Restore(t.Context(), bytes.NewReader(file)); err != nil {
		t.Error(err)
	}
	if got := strip(n.cfg.FSM.(*picky).all()); !slices.Equal(got, []string{"one"}) {
		t.Errorf("restored %q", got)
	}
	mustPropose(t, n, "three")
	left, err := filepath.Glob(filepath.Join(n.cfg.Dir, "restore*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	mustClose(t, n)
	var again ledger
	n = mustOpen(t, n.cfg.Dir, &again)
	if got := strip(again.all()); !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("reopened with %q", got)
	}
	if err := n.Snapshot(); err != nil {
		t.Error(err)
	}
}

// A state machine that refuses a backup after all stops the node, and no more than it.
func TestRefusedRestoreStopsTheNode(t *testing.T) {
	fsm := &ledger{}
	n := mustOpen(t, t.TempDir(), fsm)
	mustPropose(t, n, "one")
	file, _ := mustBackup(t, n)
	fsm.mu.Lock()
	fsm.refuse = errors.New("broken")
	fsm.mu.Unlock()
	if err := n.Restore(t.Context(), bytes.NewReader(file)); !errors.Is(err, fsm.refuse) {
		t.Errorf("got %v", err)
	}
	if got := waitDone(t, n); got.Op != "restore" {
		t.Errorf("stopped with %v", got)
	}
	mustClose(t, n)
}

func TestBackupEndsWithItsContext(t *testing.T) {
	n := mustOpen(t, t.TempDir(), &ledger{})
	for range 20 {
		mustPropose(t, n, strings.Repeat("x", MaxEntry/2))
	}
	file, b := mustBackup(t, n)
	if got, err := ReadBackup(bytes.NewReader(file), func(r io.Reader) error {
		_, err := io.Copy(io.Discard, io.LimitReader(r, 10)) // not all of it
		return err
	}); err != nil || got != b {
		t.Errorf("read %+v, %v, want %+v", got, err, b)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Backup(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	mustClose(t, n)
	if _, err := n.Backup(t.Context(), io.Discard); !errors.Is(err, ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}

func FuzzReadBackup(f *testing.F) {
	for _, b := range []Backup{{Index: 7, Number: 7, Term: 2}, {Index: 7, Number: 9, Term: 2}} {
		var out bytes.Buffer
		err := writeBackup(f.Context(), &out, b, func(w io.Writer) error {
			_, err := io.WriteString(w, "state")
			return err
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(out.Bytes())
	}
	f.Add([]byte(backupMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		var state bytes.Buffer
		info, err := ReadBackup(bytes.NewReader(b), func(r io.Reader) error {
			_, err := io.Copy(&state, r)
			return err
		})
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeBackup(t.Context(), &again, info, func(w io.Writer) error {
			_, err := w.Write(state.Bytes())
			return err
		}); err != nil || again.Len() > len(b) {
			t.Errorf("%d bytes became %d, %v", len(b), again.Len(), err)
		}
	})
}

// TestLogStaysBounded: a node that goes on for long does not need more and more room.
func TestLogStaysBounded(t *testing.T) {
	t.Parallel()
	n := mustOpen(t, t.TempDir(), &counter{}, func(c *Config) { c.SnapshotEvery = 256 })
	size := func() int64 {
		st, err := os.Stat(filepath.Join(n.cfg.Dir, storeFile))
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	var at [10]int64
	entry := strings.Repeat("x", 4<<10)
	for round := range at {
		done := make(chan error, 256)
		for range cap(done) {
			go func() {
				_, _, err := n.Propose(t.Context(), []byte(entry))
				done <- err
			}()
		}
		for range cap(done) {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
		at[round] = size()
	}
	if at[9] > at[4]+at[4]/4 {
		t.Errorf("sizes %v: the file grows on", at)
	}
}
