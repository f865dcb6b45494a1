#!/bin/sh
# Takes the service away and leaves what the node knows:
#
#   installers/hub/uninstall.sh
#
# `tugline hub remove` on another node comes first: the cluster would wait for this one.
set -eu

main() {
  if [ "$(id -u)" != 0 ]; then
    echo "uninstall.sh: run it as root" >&2
    exit 2
  fi
  for unit in tugline-hub-backup.timer tugline-hub-backup.service tugline-hub.service; do
    if [ -e "/etc/systemd/system/$unit" ]; then
      systemctl disable --quiet --now "$unit" || true
      rm -f "/etc/systemd/system/$unit"
    fi
  done
  systemctl daemon-reload
  systemctl reset-failed 'tugline-hub*' 2>/dev/null || true
  rm -f /usr/local/bin/tugline
  echo "The service is gone. Left are the node's data in /var/lib/tugline, /etc/tugline and the user tugline;"
  echo "to lose them too: rm -r /var/lib/tugline /etc/tugline && userdel tugline"
}

main "$@"
