// Package keychain keeps small secrets in the Keychain of a Mac, by its program `security`.
//
// It guarantees that a secret is on no command line, where every user of the machine could
// read it, and that Put has read back what it wrote. Which secrets there are is left to
// its caller.
package keychain

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"tugline.dev/tugline/runner/process"
)

// service is the name of all items; the account tells them apart.
const service = "dev.tugline.runner"

// patience bounds one call: somebody may be asked for the Keychain's password.
const patience = time.Minute

// Exit codes of security, which are the lowest byte of the system's errors.
const (
	missing = 44 // errSecItemNotFound
	locked  = 36 // errSecInteractionNotAllowed
)

var (
	// ErrMissing says that the Keychain has no such item.
	ErrMissing = errors.New("the Keychain has no such item")
	// ErrLocked says that the Keychain would have to ask somebody, and nobody is there.
	ErrLocked = errors.New("the Keychain is locked; log in at the screen, or run `security unlock-keychain` in a session of the same user")
)

// Security is the login Keychain of whoever runs this.
type Security struct {
	Program string // /usr/bin/security if ""
}

// accountName has nothing that `security -i` would take for anything but a word.
var accountName = regexp.MustCompile(`^[0-9a-z][0-9a-z-]{0,63}$`)

// Get gives the secret of an account. Errors: ErrMissing, ErrLocked.
func (s Security) Get(ctx context.Context, account string) ([]byte, error) {
	out, err := s.run(ctx, account, "", "find-generic-password", "-s", service, "-a", account, "-w")
	if err != nil {
		return nil, fmt.Errorf("read from the Keychain: %w", err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(out))
	if err != nil || len(secret) == 0 {
		return nil, fmt.Errorf("read from the Keychain: the item %s of %s is not one of this program", account, service)
	}
	return secret, nil
}

// Put keeps the secret of an account in the place of one from before. The command that
// names it goes to standard input.
func (s Security) Put(ctx context.Context, account string, secret []byte) error {
	command := "add-generic-password -U -s " + service + " -a " + account + " -w " + hex.EncodeToString(secret) + "\n"
	if _, err := s.run(ctx, account, command, "-i"); err != nil {
		return fmt.Errorf("write to the Keychain: %w", err)
	}
	// Of commands that it reads it does not always tell by its exit code how they went.
	is, err := s.Get(ctx, account)
	if err == nil && !bytes.Equal(is, secret) {
		err = errors.New("another secret came back")
	}
	if err != nil {
		return fmt.Errorf("write to the Keychain: %w", err)
	}
	return nil
}

// Delete takes an account away; one that is not there is no error.
func (s Security) Delete(ctx context.Context, account string) error {
	_, err := s.run(ctx, account, "", "delete-generic-password", "-s", service, "-a", account)
	if err != nil && !errors.Is(err, ErrMissing) {
		return fmt.Errorf("delete from the Keychain: %w", err)
	}
	return nil
}

func (s Security) run(ctx context.Context, account, stdin string, args ...string) (string, error) {
	if !accountName.MatchString(account) {
		return "", fmt.Errorf("%q is no account", account)
	}
	program := s.Program
	if program == "" {
		program = "/usr/bin/security"
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	env := []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin"}
	for _, name := range []string{"HOME", "USER"} {
		env = append(env, name+"="+os.Getenv(name))
	}
	res, err := process.Run(ctx, process.Cmd{Argv: append([]string{program}, args...), Env: env, Stdin: strings.NewReader(stdin)})
	var exit *process.ExitError
	if !errors.As(err, &exit) {
		return string(res.Stdout), err
	}
	switch res.ExitCode {
	case missing:
		return "", ErrMissing
	case locked:
		return "", ErrLocked
	}
	// What it says names the item and never the secret; it is shortened even so.
	return "", fmt.Errorf("security ended with %d: %.200s", res.ExitCode, strings.Join(strings.Fields(string(res.Stderr)), " "))
}
