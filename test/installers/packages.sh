#!/bin/sh
# Installs what test/installers needs from Debian, where it is absent, and starts none of it;
# with "soak" also what its long forms need.
set -eu

want=
need() { # PROGRAM PACKAGE
  command -v "$1" >/dev/null 2>&1 || want="$want $2"
}
need dockerd docker.io
need docker docker.io
need ip iproute2
need iptables iptables
need nginx nginx-light
need haproxy haproxy
need systemd-nspawn systemd-container
need systemd-analyze systemd
need dbus-daemon dbus
if [ "${1-}" = soak ]; then
  need rpm rpm
  need lintian lintian
  need ruby ruby
fi
docker compose version >/dev/null 2>&1 || need docker-compose docker-compose
[ -x /lib/systemd/systemd ] || want="$want systemd"
[ -n "$want" ] || exit 0

# The packages would start what they bring; this file is how Debian is told not to.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod +x $policy
  trap 'rm -f $policy' EXIT
fi
apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $want
