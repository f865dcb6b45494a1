package hub

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const aPassphrase = "correct horse battery"

// archived makes a hub with a job and some output, and an archive of it.
func archived(t *testing.T) (*node, fleet.JobID, []byte) {
	t.Helper()
	n := start(t, t.TempDir(), true)
	id, code := n.submit()
	if code != http.StatusCreated {
		t.Fatalf("submit: %d", code)
	}
	k := spool.Key{Job: id, Fence: fleet.Fence{Epoch: 1, Index: 9}, Name: spool.Output}
	if _, err := n.hub.copies.Append(t.Context(), k, 0, []byte("what it said")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := n.hub.Backup(t.Context(), &b, aPassphrase, true); err != nil {
		t.Fatal(err)
	}
	return n, id, b.Bytes()
}

func TestRestoreUndoesAndRepeatsRevocations(t *testing.T) {
	n, first, b := archived(t)
	later, _ := n.submit()
	var tok api.Token
	if code := n.call(http.MethodPost, "/v1/tokens", "", api.TokenRequest{Name: "mine", Role: fleet.RoleAdmin}, &tok); code != http.StatusCreated {
		t.Fatal(code)
	}
	bootstrap := n.hub.entries.View().Tokens()[0].ID
	if bootstrap == tok.ID {
		bootstrap = n.hub.entries.View().Tokens()[1].ID
	}
	n.token = tok.Secret
	if code := n.call(http.MethodDelete, "/v1/tokens/"+string(bootstrap), "", nil, nil); code != http.StatusNoContent {
		t.Fatal(code)
	}
	req, err := http.NewRequest(http.MethodPut, n.hub.URL()+"/v1/restore", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+n.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var done api.Restored
	if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK || json.Unmarshal(body, &done) != nil {
		t.Fatalf("restore: %d %s", res.StatusCode, body)
	}
	if done.LostJobs != 1 || len(done.Lost) != 1 || done.Lost[0] != later || len(done.Again) != 1 || done.Epoch != 3 {
		t.Errorf("the answer: %+v", done)
	}
	if !n.knows(first) || n.knows(later) {
		t.Error("what is on record is not what was backed up")
	}
	if k, ok := n.hub.entries.View().Token(bootstrap); !ok || !k.Revoked {
		t.Error("a token that was revoked since is good again")
	}
	if n.hub.entries.View().Meta().Epoch != 3 || n.hub.seenEpoch() != 3 {
		t.Errorf("epoch %d, seen %d", n.hub.entries.View().Meta().Epoch, n.hub.seenEpoch())
	}
	if _, code := n.submit(); code != http.StatusCreated {
		t.Errorf("submit after the restore: %d", code)
	}
}

// TestRestorePutsOutputBack: output and files that are not there any more come back with
// a backup that holds them, and what is there stays as it is.
func TestRestorePutsOutputBack(t *testing.T) {
	n := start(t, t.TempDir(), true)
	id, _ := n.submit()
	other, _ := n.submit()
	gone, kept := spool.Key{Job: id, Fence: fleet.Fence{Epoch: 1, Index: 9}, Name: spool.Output}, spool.Key{Job: other, Fence: fleet.Fence{Epoch: 1, Index: 10}, Name: spool.Output}
	for _, k := range []spool.Key{gone, kept} {
		if _, err := n.hub.copies.Append(t.Context(), k, 0, []byte("what it said")); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.hub.copies.Seal(t.Context(), gone, 12, digestOf("what it said")); err != nil {
		t.Fatal(err)
	}
	file := n.put("a file")
	for _, output := range []bool{true, false} {
		var b bytes.Buffer
		if err := n.hub.Backup(t.Context(), &b, "", output); err != nil {
			t.Fatal(err)
		}
		if err := n.hub.copies.Delete(id); err != nil {
			t.Fatal(err)
		}
		if err := n.hub.blobs.Delete(file); err != nil {
			t.Fatal(err)
		}
		if output { // once
			if _, err := n.hub.copies.Append(t.Context(), kept, 12, []byte(", and more")); err != nil {
				t.Fatal(err)
			}
		}
		done, err := n.hub.Restore(t.Context(), &b, "t-test")
		if err != nil {
			t.Fatal(err)
		}
		size, sealed := n.hub.copies.Size(gone)
		if back := size == 12 && sealed && n.has(file); back != output {
			t.Errorf("with output %t: %d bytes are back, sealed %t, the file %t", output, size, sealed, n.has(file))
		}
		if want := map[bool]int{true: 1}[output]; done.Streams != want || done.Blobs != want {
			t.Errorf("with output %t: %d streams and %d files are said to be back", output, done.Streams, done.Blobs)
		}
		if size, _ := n.hub.copies.Size(kept); size != 22 {
			t.Errorf("with output %t: %d bytes of what was there", output, size)
		}
	}
}

func TestStateThatWasSetBackIsRaisedAtTheNextStart(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir, true)
	if err := n.hub.sawEpoch(7); err != nil { // as if a restore had ended between its two steps
		t.Fatal(err)
	}
	n.stop()
	n = start(t, dir, false)
	if m := n.hub.entries.View().Meta(); m.Epoch != 8 || m.Epochs[len(m.Epochs)-1].Cause != "restore" {
		t.Errorf("epoch %d, %+v", m.Epoch, m.Epochs)
	}
}

func TestRecoverFromABackup(t *testing.T) {
	t.Parallel()
	n, id, b := archived(t)
	cluster, token := n.hub.id.Cluster, n.token
	n.stop()
	file := filepath.Join(t.TempDir(), "b.tar")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pass string
		anew bool
		want string
	}{
		"no passphrase":    {"", false, "--passphrase-file"},
		"wrong passphrase": {"wrong horse battery", false, "does not open"},
	} {
		dir := t.TempDir()
		if _, err := RecoverFrom(dir, file, c.pass, c.anew); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "node.json")); err == nil {
			t.Errorf("%s: a node lives there all the same", name)
		}
	}
	for name, anew := range map[string]bool{"keys of the backup": false, "new keys": true} {
		dir := t.TempDir()
		r, err := RecoverFrom(dir, file, aPassphrase, anew)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Cluster != cluster || r.Jobs != 1 || r.NewKeys != anew {
			t.Errorf("%s: %+v", name, r)
		}
		h, err := New(Config{Dir: dir, Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := running(t, h, token)
		if !m.knows(id) {
			t.Errorf("%s: the job is gone", name)
		}
		if e := h.entries.View().Meta(); e.Epoch != 1+epochsSince+1 || e.Epochs[0].Cause != "recover" {
			t.Errorf("%s: epoch %d %+v", name, e.Epoch, e.Epochs)
		}
		size, _ := h.copies.Size(spool.Key{Job: id, Fence: fleet.Fence{Epoch: 1, Index: 9}, Name: spool.Output})
		if size != int64(len("what it said")) {
			t.Errorf("%s: %d bytes of output", name, size)
		}
		if same := h.secrets.newest(fleet.KeyHMAC).ID == n.hub.secrets.newest(fleet.KeyHMAC).ID; same == anew {
			t.Errorf("%s: keys are the same: %t", name, same)
		}
		m.stop()
	}
}

// TestRecoverWithoutKeysAfterRotations: keys that were replaced a while ago, and that would
// still count for a while, are gone with all others; the node does not wait for them.
func TestRecoverWithoutKeysAfterRotations(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), true)
	for range 2 {
		for _, kind := range fleet.KeyKinds {
			if res, err := n.hub.rotate(t.Context(), state.Head{Actor: "t-1"}, kind, day); err != nil || res.Code != "" {
				t.Fatalf("rotate %s: %v %s", kind, err, res.Detail)
			}
		}
	}
	id, _ := n.submit()
	file, token := filepath.Join(t.TempDir(), "b.tar"), n.token
	var b bytes.Buffer
	if err := n.hub.Backup(t.Context(), &b, "", false); err != nil {
		t.Fatal(err)
	}
	n.stop()
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if r, err := RecoverFrom(dir, file, "", false); err != nil || !r.NewKeys {
		t.Fatalf("%+v %v", r, err)
	}
	h, err := New(Config{Dir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	m := running(t, h, token)
	if _, code := m.submit(); code != http.StatusCreated || !m.knows(id) {
		t.Errorf("it takes no work (%d), or has forgotten", code)
	}
}

func TestRecoverANode(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir, true)
	id, _ := n.submit()
	token := n.token
	if _, err := Recover(dir, false); err == nil {
		t.Error("a running node was recovered")
	}
	n.stop()
	r, err := Recover(dir, false)
	if err != nil || r.Jobs != 1 || r.Log.Before.Last == 0 {
		t.Fatalf("%+v %v", r, err)
	}
	h, err := New(Config{Dir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	m := running(t, h, token)
	if e := h.entries.View().Meta(); !m.knows(id) || e.Epoch != 2 {
		t.Errorf("epoch %d", e.Epoch)
	}
	if _, ok, _ := h.recovering(); ok {
		t.Error("the mark of the recovery is still there")
	}
}

func TestDump(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := start(t, dir, true)
	id, _ := n.submit()
	var b bytes.Buffer
	if err := Dump(dir, &b); err == nil || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("a running node: %v", err)
	}
	n.stop()
	b.Reset()
	if err := Dump(dir, &b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"command":"SubmitJob"`, string(id), `"kind":"state"`, `"epoch":1`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the dump lacks %s", want)
		}
	}
	if err := Dump(t.TempDir(), &b); err == nil || !strings.Contains(err.Error(), "no hub node") {
		t.Errorf("an empty directory: %v", err)
	}
}

// running runs an opened hub until the test or its stop ends.
func running(t *testing.T, h *Hub, token string) *node {
	t.Helper()
	m := &node{t: t, hub: h, token: token}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	m.stop = func() {
		m.stop = func() {}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(func() { m.stop() })
	select {
	case <-h.Ready():
	case <-time.After(20 * time.Second):
		t.Fatal("the hub is not ready after 20 s")
	}
	return m
}

func TestArchivesThatAreNone(t *testing.T) {
	t.Parallel()
	_, _, b := archived(t)
	if _, err := VerifyBackup(bytes.NewReader(b)); err != nil {
		t.Fatalf("as it was made: %v", err)
	}
	flipped := bytes.Clone(b)
	flipped[len(b)/3] ^= 1
	other := rewrite(t, b, func(h *tar.Header, body []byte) (*tar.Header, []byte) {
		if h.Name == nameManifest {
			body = bytes.Replace(body, []byte(`"version": 1`), []byte(`"version": 9`), 1)
		}
		return h, body
	})
	out := rewrite(t, b, func(h *tar.Header, body []byte) (*tar.Header, []byte) {
		if strings.HasPrefix(h.Name, "spool/") {
			h.Name = "../outside"
		}
		return h, body
	})
	for name, bad := range map[string][]byte{
		"empty": nil, "cut": b[:len(b)/2], "without its end": b[:len(b)-2048], "a bit flipped": flipped, "of a newer version": other, "outside": out, "text": []byte("hello"),
	} {
		if _, err := VerifyBackup(bytes.NewReader(bad)); !errors.Is(err, fleet.BadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// rewrite changes an archive, its sums left as they were.
func rewrite(t *testing.T, b []byte, change func(*tar.Header, []byte) (*tar.Header, []byte)) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		h, body = change(h, body)
		h.Size = int64(len(body))
		if err := errors.Join(w.WriteHeader(h), func() error { _, err := w.Write(body); return err }()); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	return out.Bytes()
}

func FuzzReadBackup(f *testing.F) {
	f.Add([]byte("backup.json"))
	var b bytes.Buffer
	a := &archiver{tar: tar.NewWriter(&b)}
	a.json(nameManifest, api.Backup{Version: 1})
	a.bytes(f.Context(), nameState, 3, strings.NewReader("abc"), nil)
	a.end()
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := ReadBackup(bytes.NewReader(b), nil)
		if _, again := VerifyBackup(bytes.NewReader(b)); err != nil && again == nil {
			t.Error("an archive that is not whole was verified")
		}
	})
}
