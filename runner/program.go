package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"

	"tugline.dev/tugline/runner/update"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const signatureTries = 3 // over all hubs, while none answers

// CheckProgram holds a program that is about to be installed against what its ticket says
// of it: where the hub has a signature of it, the bytes have to be signed for this version
// and platform by the key that the ticket names. It tells how far the program was checked,
// and where it was not, why; an error is to end the installation. Nothing is changed, and
// the ticket is not used.
func CheckProgram(ctx context.Context, ticket, version, file string) (how string, err error) {
	t, err := wire.ParseTicket(ticket)
	if err != nil {
		return "", notTaken(err)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	platform := runtime.GOOS + "-" + runtime.GOARCH
	sum := sha256.Sum256(program)
	is := fleet.Digest(hex.EncodeToString(sum[:]))
	signed, told := t.Signed[platform]
	switch want := t.Programs[platform]; {
	case want == "":
		return "not at all, for the ticket names no program for " + platform, nil
	case is != want:
		return fmt.Sprintf("not at all, for it is not the one that the hub gives out (its SHA-256 is %s, the ticket names %s)", is, want), nil
	case !told:
		return "by its SHA-256 only: the ticket does not say whether it is signed, for its hub is of an earlier version", nil
	case !signed:
		return "by its SHA-256 only: the hub has no signature of it", nil
	}
	if err := signedBy(ctx, &t, program, version); err != nil {
		return "", fmt.Errorf("this program is not as the ticket says, signed by %s: %w; nothing was installed", t.ReleaseKey, err)
	}
	return "signed for " + version + " on " + platform + " by " + t.ReleaseKey, nil
}

// signedBy sees that one of the ticket's hubs has a good signature of the program.
func signedBy(ctx context.Context, t *wire.Ticket, program []byte, version string) error {
	id := identity{Trust: t.Trust, Pin: t.Pin, Pins: t.Pins, CA: t.CA, Plain: t.Plain}
	n, err := newNetwork(&id, id.pins, nil)
	if err != nil {
		return err
	}
	defer n.close()
	for try, wait := 1, 500*time.Millisecond; ; try, wait = try+1, 2*wait {
		var last, bad error
		passes := false // with another try it may be there
		for _, hub := range t.Hubs {
			sig, err := askSignature(ctx, n, hub)
			if err != nil {
				last, passes = err, passes || !errors.Is(err, fleet.NotFound)
				continue
			}
			if err = verifies(t.ReleaseKey, sig, program, version); err == nil {
				return nil
			}
			bad = fmt.Errorf("%s: %w", hub, err)
		}
		if !passes || try == signatureTries {
			if bad != nil { // says more than that another hub was not reached
				return bad
			}
			return last
		}
		select {
		case <-time.After(jitter(wait)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// verifies holds a program against a signature.
func verifies(key, sig string, program []byte, version string) error {
	v, system, arch, err := update.Signed(key, sig, program)
	if err != nil {
		return err
	}
	if order, ok := fleet.CompareVersions(v, version); !ok || order != 0 || system != runtime.GOOS || arch != runtime.GOARCH {
		return fmt.Errorf("what was signed is %s for %s/%s, and this is %s for %s/%s", v, system, arch, version, runtime.GOOS, runtime.GOARCH)
	}
	return nil
}

func askSignature(ctx context.Context, n *network, hub string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, enrolTime)
	defer cancel()
	url := strings.TrimSuffix(hub, "/") + "/v1/binaries/" + runtime.GOOS + "/" + runtime.GOARCH + ".minisig"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("ask %s for the signature: %w", hub, err)
	}
	res, err := n.client.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask %s for the signature: %w", hub, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, wire.MaxEnrol))
	switch {
	case err != nil:
		return "", fmt.Errorf("ask %s for the signature: %w", hub, err)
	case res.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%s has no signature of it: %w", hub, problemOf(res.StatusCode, b))
	}
	return string(b), nil
}
