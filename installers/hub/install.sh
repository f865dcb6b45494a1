#!/bin/sh
# Puts a hub node in place as a service of this machine:
#
#   installers/hub/install.sh BINARY
#
# Run again with a newer binary it upgrades, and with the same one it changes nothing. It
# starts and stops nothing: README.md beside it says what comes next.
set -eu

changed=

# put MODE FROM TO copies a file where it is not yet, in one step.
put() {
  if cmp -s "$2" "$3" && [ "$(stat -c %a:%u:%g "$3")" = "$1:0:0" ]; then
    return
  fi
  install -D -o root -g root -m "$1" "$2" "$3.new"
  mv -f "$3.new" "$3"
  echo "install.sh: $3"
  changed="$changed $3"
}

# All in one function: a script that was cut short does nothing.
main() {
  if [ $# -ne 1 ] || [ ! -f "$1" ]; then
    echo "usage: install.sh BINARY, the tugline program for this machine" >&2
    exit 2
  fi
  if [ "$(id -u)" != 0 ]; then
    echo "install.sh: it writes to /usr/local and /etc; run it as root" >&2
    exit 2
  fi
  chmod +x "$1" 2>/dev/null || true
  if ! "$1" version >/dev/null; then
    echo "install.sh: $1 does not run here; is it for another kind of machine?" >&2
    exit 2
  fi
  here=$(cd "$(dirname "$0")" && pwd)

  if ! getent passwd tugline >/dev/null; then
    useradd --system --user-group --home-dir /var/lib/tugline --no-create-home --shell /usr/sbin/nologin tugline
    echo "install.sh: user tugline"
  fi
  if [ ! -d /var/lib/tugline ]; then
    install -d -o tugline -g tugline -m 700 /var/lib/tugline
    echo "install.sh: /var/lib/tugline"
  fi
  put 755 "$1" /usr/local/bin/tugline
  for unit in tugline-hub.service tugline-hub-backup.service tugline-hub-backup.timer; do
    put 644 "$here/$unit" "/etc/systemd/system/$unit"
  done
  # It may hold a ticket or a token, and is the operator's from then on.
  if [ ! -e /etc/tugline/hub.env ]; then
    install -d -m 755 /etc/tugline
    put 600 "$here/hub.env" /etc/tugline/hub.env
  fi
  case $changed in *.service* | *.timer*) systemctl daemon-reload ;; esac

  if systemctl is-active --quiet tugline-hub; then
    case $changed in
    *bin/tugline* | *tugline-hub.service*) echo "It runs the version from before. Next: systemctl restart tugline-hub" ;;
    esac
  elif [ -n "$changed" ]; then
    echo "Next: fill in /etc/tugline/hub.env, then systemctl enable --now tugline-hub"
  fi
}

main "$@"
