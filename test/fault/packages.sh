#!/bin/sh
# Says so where the suite will be skipped; else installs what it needs and is not here,
# from Debian: ip, and nsenter.
set -eu
if [ "$(id -u)" != 0 ]; then
  echo "test/fault is SKIPPED: it puts processes into network namespaces and mounts disks, which only root may" >&2
  exit 0
fi
need=
command -v ip >/dev/null || need="$need iproute2"
command -v nsenter >/dev/null || need="$need util-linux"
[ -n "$need" ] || exit 0
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
apt-get install -y -q $need >/dev/null || { apt-get update -q >/dev/null && apt-get install -y -q $need >/dev/null; }
