#!/bin/sh
# Installs a Tugline runner on this machine. A hub serves this script as /install.sh, with a
# last line that calls main with the hub's URL and the pin of its key; the command to paste
# is what `tugline hub ticket` prints. It fetches the hub's own program over the same pin,
# checks it against the SHA-256 that the ticket names, and has it install itself:
#
#   … | sh -s -- TICKET [flags of `tugline runner install`]
#
# Everything is in functions: a script that was cut short does nothing.
set -eu

die() {
  printf 'install.sh: %s\n' "$1" >&2
  exit "${2:-1}"
}

# get FILE URL downloads over the pinned key, on from what the file has already; without a
# pin the certificate counts. Of the user's own settings for curl none is read.
get() {
  set -- -fsS --connect-timeout 20 --speed-limit 1 --speed-time 60 --retry 2 -C - -o "$1" "$2"
  if [ -n "$pin" ]; then
    curl -q -k --pinnedpubkey "$pin" "$@"
  else
    curl -q "$@"
  fi
}

# fetch FILE URL goes on with a download that breaks off, a few times.
fetch() {
  for pause in 0 1 1 2 2 none; do
    code=0
    get "$1" "$2" || code=$?
    case $code in
    0) return 0 ;;
    16 | 18 | 28 | 52 | 55 | 56 | 92) ;;  # it broke off
    33 | 36) rm -f "$1" ;;           # it can't be gone on with, only begun anew
    *) return 1 ;;
    esac
    [ "$pause" = none ] || sleep "$pause"
  done
  return 1
}

# sum FILE prints its SHA-256.
sum() {
  if command -v sha256sum >/dev/null; then
    sha256sum <"$1"
  elif command -v shasum >/dev/null; then
    shasum -a 256 <"$1"
  else
    openssl dgst -sha256 -r <"$1"
  fi | cut -c 1-64
}

# named TICKET PLATFORM prints the SHA-256 that a ticket names for a platform, if it does.
named() {
  text=$(printf %s "${1#tug1_}" | tr -- '-_' '+/')
  case $((${#text} % 4)) in
  2) text=$text== ;;
  3) text=$text= ;;
  esac
  for decode in 'base64 -d' 'base64 -D' 'openssl base64 -d -A'; do
    # shellcheck disable=SC2086
    json=$(printf '%s\n' "$text" | $decode 2>/dev/null | LC_ALL=C tr -cd ' -~')
    case $json in *'{"h":'*) break ;; esac
  done
  printf '%s\n' "$json" | sed -n 's/.*"b":{[^}]*"'"$2"'":"\([0-9a-f]*\)".*/\1/p'
}

# main HUB PIN [TICKET [FLAG...]]
main() {
  hub=$1 pin=$2
  shift 2
  # Programs are the system's, whatever PATH says; the service is installed with that PATH.
  theirs=${PATH-}
  PATH=/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/opt/homebrew/bin
  export PATH
  umask 077

  ticket=${1-}
  [ $# -eq 0 ] || shift
  case $ticket in
  '') die 'usage: sh -s -- TICKET, with a ticket that the hub made (tugline hub ticket)' 2 ;;
  tug1_*) ;;
  *) die 'that is no ticket for a runner: one begins with tug1_' 2 ;;
  esac
  case $ticket in *[!A-Za-z0-9_-]*) die 'the ticket has a character that does not belong there; copy it again' 2 ;; esac

  case $(uname -s) in
  Linux) os=linux ;;
  Darwin) os=darwin ;;
  *) die "there is no runner for $(uname -s)" ;;
  esac
  case $(uname -m) in
  x86_64 | amd64) arch=amd64 ;;
  aarch64 | arm64) arch=arm64 ;;
  *) die "there is no runner for processors of the kind $(uname -m)" ;;
  esac
  want=$(named "$ticket" "$os-$arch")
  [ -n "$want" ] || die "the hub has no program for $os/$arch; have its operator give it one (tugline hub run --programs DIR), and make a new ticket"
  [ ${#want} -eq 64 ] || die 'the ticket is damaged; copy it again' 2
  command -v curl >/dev/null || die 'this needs curl'

  dir=$(mktemp -d) || die 'there is no room for a temporary directory'
  trap 'rm -rf "$dir"' EXIT
  trap 'exit 1' HUP INT TERM
  fetch "$dir/tugline" "$hub/v1/binaries/$os/$arch" || die "the program could not be fetched from $hub"
  is=$(sum "$dir/tugline")
  [ "$is" = "$want" ] || die "what $hub sent has the SHA-256 $is, and the ticket names $want; nothing was installed. Make a new ticket: the hub may have another version since"
  chmod 700 "$dir/tugline"
  # The ticket is not for everybody on this machine to read.
  printf '%s\n' "$ticket" | PATH=$theirs "$dir/tugline" runner install --ticket - "$@"
}
