#!/bin/sh
# Installs what the suite needs and is not here: ip and iptables. Debian, as root.
set -eu
need=
command -v ip >/dev/null || need="$need iproute2"
command -v iptables >/dev/null || need="$need iptables"
[ -n "$need" ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "test/fault: the packages$need are missing; the suite needs root" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -q $need >/dev/null || { apt-get update -q >/dev/null && apt-get install -y -q $need >/dev/null; }
