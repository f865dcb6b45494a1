// Package keychaintest has a program that answers as a Mac's `security` does, for tests on
// machines without one. It keeps items in files and notes how it was called; what it knows
// is by the manual, for it was not held against a Mac.
package keychaintest

import (
	"os"
	"path/filepath"
	"testing"
)

// Fake is a Keychain in a directory.
type Fake struct {
	Program string
	t       testing.TB
	dir     string
}

const script = `#!/bin/sh
cd "$(dirname "$0")" || exit 1
printf '%s\n' "$*" >>calls
answer() {
  [ ! -e locked ] || { echo 'security: User interaction is not allowed.' >&2; return 36; }
  verb=$1 account='' secret=''
  shift
  while [ $# -gt 0 ]; do
    case $1 in
    -a) account=$2; shift ;;
    -s) [ "$2" = dev.tugline.runner ] || return 1; shift ;;
    -w) secret=${2-}; [ $# -eq 1 ] || shift ;;
    -U) ;;
    *) echo "usage: $1" >&2; return 2 ;;
    esac
    shift
  done
  case $verb in
  add-generic-password) printf '%s' "$secret" >"item-$account" ;;
  find-generic-password) [ -e "item-$account" ] || return 44; cat "item-$account"; echo ;;
  delete-generic-password) [ -e "item-$account" ] || return 44; rm "item-$account" ;;
  *) return 2 ;;
  esac
}
if [ "$1" = -i ]; then
  while read -r line; do
    # shellcheck disable=SC2086
    answer $line
  done
  exit 0
fi
answer "$@"
`

// New makes one.
func New(t testing.TB) *Fake {
	f := &Fake{t: t, dir: t.TempDir()}
	f.Program = filepath.Join(f.dir, "security")
	f.write("security", script, 0o755)
	return f
}

func (f *Fake) write(name, text string, mode os.FileMode) {
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), mode); err != nil {
		f.t.Fatal(err)
	}
}

// Lock has it refuse everything until Unlock.
func (f *Fake) Lock() { f.write("locked", "", 0o600) }

// Unlock ends that.
func (f *Fake) Unlock() {
	if err := os.Remove(filepath.Join(f.dir, "locked")); err != nil {
		f.t.Error(err)
	}
}

// CommandLines gives the arguments of every call, a line each.
func (f *Fake) CommandLines() string {
	b, err := os.ReadFile(filepath.Join(f.dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		f.t.Error(err)
	}
	return string(b)
}

// Items gives how many secrets it keeps.
func (f *Fake) Items() int {
	all, _ := filepath.Glob(filepath.Join(f.dir, "item-*"))
	return len(all)
}
