package session

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// TestRunnersOfOtherReleases: a runner of the release before says less, and one of the
// release after more, than this hub knows. Both are welcomed, and do their jobs.
func TestRunnersOfOtherReleases(t *testing.T) {
	t.Parallel()
	for release, version := range map[string]string{"before": "0.9.0", "after": "1.1.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			a := h.enrolled()
			said := func(what string, words ...string) []byte {
				t.Helper()
				b, err := os.ReadFile(filepath.Join("testdata", what+"-"+release+".json"))
				if err != nil {
					t.Fatal(err)
				}
				return []byte(strings.NewReplacer(words...).Replace(strings.TrimSpace(string(b))))
			}

			conn, challenge := a.dial(a.id)
			f, err := wire.OpenPlain(challenge)
			if err != nil {
				t.Fatal(err)
			}
			var c wire.Challenge
			if err := wire.Decode(f.Body, &c); err != nil {
				t.Fatal(err)
			}
			nonce := random(t, wire.NonceSize)
			hello := said("hello", "RUNNER", string(a.id), "CLUSTER", testCluster, "NONCE", base64.StdEncoding.EncodeToString(nonce), "TIME", time.Now().UTC().Format(time.RFC3339Nano))
			if err := conn.WriteMessage(websocket.BinaryMessage, helloFrame(a.key, challenge, hello)); err != nil {
				t.Fatal(err)
			}
			key, err := wire.DeriveSession(a.key, c.Nonce, nonce, testCluster, a.id)
			if err != nil {
				t.Fatal(err)
			}
			k := &linkTalk{a: a, conn: conn, sk: key, seal: wire.NewSealer(key, wire.LinkUp), open: wire.NewOpener(key, wire.LinkDown)}
			k.session = welcome(t, k.frame())
			defer k.close()

			if _, bye := k.say(wire.TypeHeartbeat, said("heartbeat"), wire.TypeHeartbeatReply); bye != nil {
				t.Fatalf("its heartbeat is refused: %+v", bye)
			}
			r, ok := h.View().Runner(a.id)
			if !ok || r.Facts.Version != version || len(r.Facts.Harnesses) != 1 || r.Facts.Slots != 2 {
				t.Errorf("the hub takes it for %+v", r)
			}
			if p, ok := h.srv.PresenceOf(a.id); !ok || !p.Connected || !p.Full {
				t.Errorf("its presence is %+v", p)
			}
			j, fence := h.assign(a.id)
			reply, _ := k.say(wire.TypeHeartbeat, said("heartbeat"), wire.TypeHeartbeatReply)
			if !strings.Contains(string(reply), string(j)) {
				t.Errorf("the job is not in what it is told: %s", reply)
			}
			if got := h.job(j).Turn().Attempts[0]; got.Fence != fence || got.State != fleet.AttemptAssigned {
				t.Errorf("the attempt is %+v", got)
			}
		})
	}
}

// helloFrame seals a hello whose bytes another release has written, as PROTOCOL.md has it.
func helloFrame(key, challenge, body []byte) []byte {
	f := append([]byte{1, byte(wire.TypeHello)}, make([]byte, 8)...)
	f = append(binary.BigEndian.AppendUint32(f, uint32(len(body))), body...)
	sum := sha256.Sum256(challenge)
	m := hmac.New(sha256.New, key)
	m.Write([]byte("tugline hello v1\x00"))
	m.Write(sum[:])
	m.Write(body)
	return append(f, m.Sum(nil)...)
}
