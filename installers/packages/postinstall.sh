#!/bin/sh
# After the files are in place: Debian says "configure", rpm how many versions there are.
set -e

data=/var/lib/tugline-runner/runner

case "$1" in
configure | [1-9]*)
  if command -v systemd-sysusers >/dev/null 2>&1; then
    systemd-sysusers tugline-runner.conf
  fi
  if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # Only where it runs, and jobs go on meanwhile.
    systemctl try-restart tugline-runner.service || echo "tugline: the service does not start again; journalctl -n 50 -u tugline-runner says why" >&2
  fi
  if [ -e /usr/local/bin/tugline ]; then
    cat <<'EOF'
tugline: /usr/local/bin/tugline is another program of that name, and comes first. If it is
that of a runner which was installed before, this has the package take its place:
    sudo /usr/bin/tugline runner install
EOF
  fi
  if [ ! -e "$data/identity.json" ]; then
    cat <<'EOF'
tugline: this machine is not enrolled yet, and the service of its runner is off. With a
ticket from the hub (tugline hub ticket there):
    sudo tugline runner install --ticket - < ticket
EOF
  fi
  ;;
esac
exit 0
