#!/bin/sh
# Before the files go: Debian says "remove", rpm that no version is left.
set -e

case "$1" in
remove | 0)
  if [ -d /run/systemd/system ]; then
    # Jobs, if any, go on.
    systemctl disable --now tugline-runner.service || echo "tugline: the service could not be stopped" >&2
  fi
  ;;
esac
exit 0
