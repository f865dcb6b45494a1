package hub

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/installers"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// platforms are those that runners are installed on, OS-ARCH each.
var platforms = []string{"darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64"}

// programs are what a node gives to machines that are to become runners: the program that
// it is itself, and those of other platforms from a directory, where they are of the same
// build.
type programs struct {
	self, dir string

	mu    sync.Mutex
	known map[string]program // by path
}

// program is what is known of a file while it does not change.
type program struct {
	size    int64
	changed time.Time
	sum     fleet.Digest
	err     error
}

// of gives the file for a platform and its sum.
func (p *programs) of(platform string) (path string, sum fleet.Digest, err error) {
	switch {
	case platform == runtime.GOOS+"-"+runtime.GOARCH:
		path = p.self
	case p.dir != "" && slices.Contains(platforms, platform): // which comes from outside
		path = filepath.Join(p.dir, "tugline-"+platform)
	}
	if path == "" {
		return "", "", fmt.Errorf("this hub has no program for %s: %w", platform, fleet.NotFound)
	}
	st, err := os.Stat(path)
	if err != nil {
		return "", "", fmt.Errorf("this hub has no program for %s: %w", platform, fleet.NotFound)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k, ok := p.known[path]
	if !ok || k.size != st.Size() || !k.changed.Equal(st.ModTime()) {
		k = program{size: st.Size(), changed: st.ModTime()}
		if k.err = p.sameBuild(path, platform); k.err == nil {
			k.sum, k.err = sumOf(path)
		}
		if p.known == nil {
			p.known = map[string]program{}
		}
		p.known[path] = k
	}
	return path, k.sum, k.err
}

// sameBuild refuses a program of another platform or revision than its name and this
// program say.
func (p *programs) sameBuild(path, platform string) error {
	if path == p.self {
		return nil
	}
	is, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s is no program of Tugline: %w", path, err)
	}
	setting := func(b *buildinfo.BuildInfo, key string) string {
		for _, s := range b.Settings {
			if s.Key == key {
				return s.Value
			}
		}
		return ""
	}
	if got := setting(is, "GOOS") + "-" + setting(is, "GOARCH"); got != platform || !strings.HasPrefix(is.Path, "tugline.dev/tugline/cmd/") {
		return fmt.Errorf("%s is %s for %s: %w", path, is.Path, got, fleet.Conflict)
	}
	own, err := buildinfo.ReadFile(p.self)
	if err != nil {
		return fmt.Errorf("read what this program is built from: %w", err)
	}
	if a, b := setting(own, "vcs.revision"), setting(is, "vcs.revision"); a != b {
		return fmt.Errorf("%s is of revision %s, and this hub is of %s: %w", path, b, a, fleet.Conflict)
	}
	return nil
}

// signature gives that of the program for a platform: of a release with the same bytes,
// or of the file beside it. Whether it is a good one is for whoever gets it to say.
func (p *programs) signature(platform string, releases []*fleet.Release) (string, error) {
	path, sum, err := p.of(platform)
	if err != nil {
		return "", err
	}
	for _, rel := range releases {
		for _, f := range rel.Files {
			if f.SHA256 == sum && f.OS+"-"+f.Arch == platform {
				return f.Signature, nil
			}
		}
	}
	beside := []string{path + ".minisig"}
	if p.dir != "" {
		beside = append(beside, filepath.Join(p.dir, "tugline-"+platform+".minisig"))
	}
	for _, file := range beside {
		switch b, err := readSome(file, fleet.MaxSignature); {
		case err == nil:
			return string(b), nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("read the signature of the program for %s: %w", platform, err)
		}
	}
	return "", fmt.Errorf("this hub has no signature of the program for %s: %w", platform, fleet.NotFound)
}

// readSome reads a file of at most so many bytes.
func readSome(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes", file, most)
	}
	return b, err
}

// describe writes into a ticket what there is for runners: sums, and whether the programs
// are signed by the cluster's key.
func (p *programs) describe(t *wire.Ticket, key string, releases []*fleet.Release) (wrong []error) {
	t.ReleaseKey = key
	t.Programs, wrong = p.sums()
	t.Signed = map[string]bool{}
	for platform := range t.Programs {
		_, err := p.signature(platform, releases)
		t.Signed[platform] = err == nil && key != ""
		if err != nil && !errors.Is(err, fleet.NotFound) {
			wrong = append(wrong, err)
		}
	}
	return wrong
}

// sums gives those of all platforms for which there is a program.
func (p *programs) sums() (all map[string]fleet.Digest, wrong []error) {
	all = map[string]fleet.Digest{}
	for _, platform := range platforms {
		path, sum, err := p.of(platform)
		switch {
		case err == nil:
			all[platform] = sum
		case path != "":
			wrong = append(wrong, err)
		}
	}
	return all, wrong
}

func sumOf(path string) (fleet.Digest, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fleet.Digest(hex.EncodeToString(h.Sum(nil))), nil
}

// program gives one to a machine that asks.
func (h *Hub) program(os, arch string) (string, fleet.Digest, error) {
	return h.programs.of(os + "-" + arch)
}

// signature gives that of a program, for a machine that holds itself against it.
func (h *Hub) signature(os, arch string) (string, error) {
	return h.programs.signature(os+"-"+arch, h.entries.View().Releases())
}

// installScript is install.sh, with a last line that says where it came from.
func (h *Hub) installScript() string {
	return installers.Script + "\nmain " + shellWord(h.url) + " " + shellWord(h.curlPin()) + ` "$@"` + "\n"
}

// InstallLine is what to paste on a machine that is to become a runner; "" where no
// program can be had from here.
func (h *Hub) InstallLine(ticket string) string {
	if h.cfg.Program == "" {
		return ""
	}
	get := "curl -fsS "
	if pin := h.curlPin(); pin != "" {
		get = "curl -fsSk --pinnedpubkey " + shellWord(pin) + " "
	}
	return get + shellWord(h.url+"/install.sh") + " | sh -s -- " + ticket
}

// curlPin is what curl has to hold this node's key against; "" where the certificate is
// one that everybody knows, or there is none.
func (h *Hub) curlPin() string {
	if h.trust() != wire.TrustPin {
		return ""
	}
	key, err := h.secrets.use.Load().issuer.leafKey()
	if err != nil {
		return ""
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(der)
	return "sha256//" + base64.StdEncoding.EncodeToString(sum[:])
}

// leafKey is the key of the certificates that a CA gives to hub nodes. It is the same on
// each of them and after each start, so that a pasted line holds for all; whoever has the
// CA's key, as every node, could certify any other as well.
func (k *heldKey) leafKey() (*ecdsa.PrivateKey, error) {
	for i := range 8 { // each has a chance of one in four thousand million to be none
		b, err := hkdf.Key(sha256.New, k.Secret, nil, fmt.Sprintf("tugline hub leaf v1 %d", i), 32)
		if err != nil {
			return nil, err
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), b); err == nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("derive the key of the hub's certificate: %w", fleet.Internal)
}

// shellWord writes a word as a shell reads it.
func shellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
