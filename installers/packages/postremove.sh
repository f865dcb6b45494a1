#!/bin/sh
# After the files are gone: Debian says "remove", and "purge" later; rpm that no version is
# left. What jobs left is never deleted here.
set -e

work=/var/lib/tugline-runner

case "$1" in
remove | purge | 0)
  if [ "$1" = purge ]; then
    rm -f /etc/systemd/system/tugline-runner.service.d/environment.conf
    rmdir /etc/systemd/system/tugline-runner.service.d 2>/dev/null || true
  fi
  if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
  fi
  if [ -e "$work" ]; then
    cat <<EOF
tugline: left is $work, with the runner's identity and what its jobs left:
  $work/runner/trees/work: worktrees of jobs
  $work/runner/trees/repos: repositories they come from, with rescued work
Installed again it goes on with them. To lose them: rm -r $work
EOF
  fi
  ;;
esac
exit 0
