package update

import (
	"errors"
	"fmt"
	"strings"

	"aead.dev/minisign"

	"tugline.dev/tugline/shared/fleet"
)

// Signed verifies a program as runners will, and says for which version and platform
// it was signed.
func Signed(key, signature string, program []byte) (version, os, arch string, err error) {
	var pub minisign.PublicKey
	if err := pub.UnmarshalText([]byte(key)); err != nil {
		return "", "", "", fmt.Errorf("the public key can't be read: %w", err)
	}
	var sig minisign.Signature
	if err := sig.UnmarshalText([]byte(signature)); err != nil {
		return "", "", "", fmt.Errorf("the signature can't be read: %w", err)
	}
	if !minisign.Verify(pub, program, []byte(signature)) {
		return "", "", "", errors.New("the signature is not that of the program by this key")
	}
	var platform string
	if n, err := fmt.Sscanf(sig.TrustedComment, "tugline %s %s", &version, &platform); err == nil && n == 2 {
		os, arch, _ = strings.Cut(platform, "/")
	}
	if !fleet.IsVersion(version) || os == "" || arch == "" || sig.TrustedComment != Comment(version, os, arch) {
		return "", "", "", fmt.Errorf("the trusted comment is %q; sign with -t 'tugline VERSION OS/ARCH', such as 'tugline 1.4.0 linux/amd64'", sig.TrustedComment)
	}
	return version, os, arch, nil
}
