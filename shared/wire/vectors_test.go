package wire

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/curve25519"

	"tugline.dev/tugline/shared/fleet"
)

func same(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

// vectors computes the test vectors of PROTOCOL.md, one "name = value" a line.
func vectors(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	put := func(name string, v any) {
		if b, ok := v.([]byte); ok {
			v = hex.EncodeToString(b)
		}
		fmt.Fprintf(&out, "%s = %v\n", name, v)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const runner = fleet.RunnerID("r-01jz0000000000000000000001")
	const job = fleet.JobID("01jz0000000000000000000002")
	const cluster = "c-example"
	fence := fleet.Fence{Epoch: 1, Index: 42}

	out.WriteString("# keys\n")
	master := make([]byte, 32)
	for i := range master {
		master[i] = byte(i)
	}
	put("master", master)
	put("runner", runner)
	put("generation", 1)
	key, err := RunnerKey(master, runner, 1)
	must(err)
	put("runner_key", key)

	out.WriteString("\n# handshake\n")
	put("cluster", cluster)
	challenge := Plain(TypeChallenge, []byte(`{"versions":[1],"nonce":"EREREREREREREREREREREREREREREREREREREREREREREQ=","time":"2026-03-01T12:00:00Z","cluster":"c-example","epoch":1,"signing":[]}`))
	put("challenge_nonce", same(0x11, 32))
	put("challenge_frame", challenge)
	hello, err := SealHello(key, challenge, Hello{Version: 1, Runner: runner, Generation: 1, Nonce: same(0x22, 32), Cluster: cluster, Epoch: 1,
		MachineID: "m-1", JournalID: "j-1", JournalCount: 7, Name: "box", Time: moment})
	must(err)
	put("hello_nonce", same(0x22, 32))
	put("hello_body", string(hello[HeaderSize:len(hello)-MACSize]))
	put("hello_mac", hello[len(hello)-MACSize:])
	sk, err := DeriveSession(key, same(0x11, 32), same(0x22, 32), cluster, runner)
	must(err)
	put("session_key", sk[:])

	out.WriteString("\n# sealed frames\n")
	body := []byte(`{"epoch":1,"term":1,"index":9,"slots":2,"count":8}`)
	put("heartbeat_body", string(body))
	put("heartbeat_link_up_seq_1", Seal(sk, LinkUp, TypeHeartbeat, 1, body))
	put("nudge_link_down_seq_2", Seal(sk, LinkDown, TypeNudge, 2, nil))
	put("poll_poll_up_seq_1", Seal(sk, PollUp, TypePoll, 1, nil))
	chunk, err := EncodeOutput(Output{Job: job, Fence: fence, Stream: StreamOutput, Offset: 5, Data: []byte("hi\x00\n")})
	must(err)
	put("output_body", chunk)

	out.WriteString("\n# orders\n")
	k1, k2 := ed25519.NewKeyFromSeed(same(0x33, 32)), ed25519.NewKeyFromSeed(same(0x44, 32))
	put("signing_seed_k1", same(0x33, 32))
	put("signing_public_k1", []byte(k1.Public().(ed25519.PublicKey)))
	put("signing_public_k2", []byte(k2.Public().(ed25519.PublicKey)))
	put("signing_k2_by_k1", SignSigningKey(k1, "k2", k2.Public().(ed25519.PublicKey)).Sig)
	stop := []byte(`{"reason":"cancelled"}`)
	put("order_body", string(stop))
	signed, err := SignOrder(k1, "k1", Order{Cluster: cluster, Epoch: 1, Runner: runner, Job: job, Fence: fence, ID: "stop/" + string(job) + "/1-42/cancelled",
		Kind: OrderStop, Body: BodyDigest(stop), NotAfter: moment.Add(10 * time.Minute)})
	must(err)
	put("order", string(signed.Order))
	put("order_sig_k1", signed.Sig)

	renew := []byte(`{"epoch":2}`)
	put("renew_body", string(renew))
	signed, err = SignOrder(k1, "k1", Order{Cluster: cluster, Epoch: 2, Runner: runner, Job: job, Fence: fence, ID: "renew/" + string(job) + "/1-42/2",
		Kind: OrderRenew, Body: BodyDigest(renew), NotAfter: moment.Add(10 * time.Minute), Critical: []string{"epoch"}})
	must(err)
	put("renew_order", string(signed.Order))
	put("renew_order_sig_k1", signed.Sig)

	out.WriteString("\n# results\n")
	own := ed25519.NewKeyFromSeed(same(0x55, 32))
	fin := &Finished{Exit: fleet.Exit{Reason: "exited"}, Class: "ok", FinishedAt: moment, Output: 9}
	must(SignFinished(own, job, fence, fin))
	put("runner_seed", same(0x55, 32))
	put("runner_public", []byte(own.Public().(ed25519.PublicKey)))
	put("job", job)
	put("fence", fence)
	put("result", string(fin.signed))
	put("result_sig", fin.sig)

	out.WriteString("\n# blobs\n")
	digest := BodyDigest([]byte("hello"))
	put("blob_path", BlobPath(runner, digest))
	put("blob_authorization", BlobAuth(sk, "5e5510", "GET", BlobPath(runner, digest), same(0x66, 32)))

	out.WriteString("\n# sealed box\n")
	priv := same(0x77, 32)
	pub, err := curve25519.X25519(priv, curve25519.Basepoint)
	must(err)
	box, err := SealTo(pub, bytes.NewReader(same(0x88, 64)), key)
	must(err)
	put("box_private", priv)
	put("box_public", pub)
	put("box_of_runner_key", box)

	out.WriteString("\n# ticket\n")
	ticket := Ticket{Hubs: []string{"https://hub.example:7443"}, Cluster: cluster, Trust: TrustPin, Pin: same(0x99, 32), Secret: "c2VjcmV0", ExpiresAt: moment}
	put("ticket", ticket)
	put("ticket_secret_hash", SecretHash(ticket.Secret))
	return out.String()
}

const (
	vectorsBegin = "<!-- vectors: computed by shared/wire, go test -update rewrites them -->\n```\n"
	vectorsEnd   = "```\n<!-- end of vectors -->"
)

// TestVectors holds the vectors printed in PROTOCOL.md to what this code computes.
func TestVectors(t *testing.T) {
	const file = "../PROTOCOL.md"
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(doc), vectorsBegin)
	printed, after, ok2 := strings.Cut(rest, vectorsEnd)
	if !ok1 || !ok2 {
		t.Fatal("PROTOCOL.md has no block of vectors")
	}
	want := vectors(t)
	if *update {
		if err := os.WriteFile(file, []byte(before+vectorsBegin+want+vectorsEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		printed = want
	}
	if printed != want {
		t.Errorf("the vectors printed in PROTOCOL.md differ from what the code computes:\nprinted:\n%s\ncomputed:\n%s", printed, want)
	}
}
