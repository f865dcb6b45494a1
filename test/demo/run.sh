#!/usr/bin/env bash
# A hub, a runner and one job on this machine, in one temporary directory, with free
# ports: submit, watch, look at the evidence and the diff, stop.
set -euo pipefail
bin=$(cd "$(dirname "$0")/../../bin" && pwd)/tugline
tmp=$(mktemp -d "${TMPDIR:-/tmp}/tugline-demo.XXXXXX")
hub_pid=
stop() {
  [ -z "$hub_pid" ] || { kill "$hub_pid" 2>/dev/null || true; wait "$hub_pid" 2>/dev/null || true; }
  rm -rf "$tmp"
}
trap stop EXIT
trap 'exit 130' INT TERM
say() { printf '\n\033[1m── %s\033[0m\n' "$*" | if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then cat; else sed $'s/\033\\[[0-9;]*m//g'; fi; }

say "1. a hub and a runner in one process"
"$bin" dev --data-dir "$tmp/dev" --listen 127.0.0.1:0 >"$tmp/dev.log" 2>&1 &
hub_pid=$!
for _ in $(seq 150); do
  [ -s "$tmp/dev/hub.url" ] && [ -s "$tmp/dev/operator.token" ] && break
  kill -0 "$hub_pid" 2>/dev/null || { cat "$tmp/dev.log"; exit 1; }
  sleep 0.1
done
TUGLINE_HUB=$(cat "$tmp/dev/hub.url"); TUGLINE_TOKEN=$(cat "$tmp/dev/operator.token")
export TUGLINE_HUB TUGLINE_TOKEN
for _ in $(seq 100); do
  "$bin" runner list 2>/dev/null | grep -q online && break
  sleep 0.1
done
"$bin" runner list

say "2. a small repository"
repo=$tmp/greeter
git init -q -b main "$repo"
cat >"$repo/greet.sh" <<'S'
#!/bin/sh
echo "hello"
S
cat >"$repo/test.sh" <<'S'
#!/bin/sh
[ "$(sh greet.sh world)" = "hello, world" ] && echo "test passed"
S
git -C "$repo" add -A
git -C "$repo" -c user.name=Demo -c user.email=demo@example.invalid commit -q -m "a greeter whose test fails"
git -C "$repo" log --oneline
(cd "$repo" && sh test.sh) || echo "its test fails, as it should for now"

harness=${HARNESS:-exec}
say "3. a job in it, with the harness $harness"
if [ "$harness" = exec ]; then
  cat >"$tmp/work.sh" <<'S'
set -e
echo "before:"; sh test.sh || echo "  test fails"
printf '#!/bin/sh\necho "hello${1:+, $1}"\n' > greet.sh
echo "after:"; sh test.sh
git add -A
git -c user.name=Demo -c user.email=demo@example.invalid commit -q -m "greet whoever is named"
S
  "$bin" exec --repo "$repo" -- sh "$tmp/work.sh"
else
  "$bin" run --repo "$repo" --harness "$harness" "Make test.sh pass by changing greet.sh only. Run sh test.sh to check. Commit your change."
fi

say "4. the evidence"
id=$("$bin" job list --json | sed -n 's/.*"id": *"\([0-9a-z]*\)".*/\1/p' | head -n 1)
"$bin" job get "$id"

say "5. the diff"
"$bin" job diff "$id"

say "6. the branch, in the repository it came from"
(cd "$repo" && "$bin" job pull "$id" && git log --oneline --all)

say "stopping"
kill "$hub_pid"; wait "$hub_pid" 2>/dev/null || true
hub_pid=
cat <<T

That was one job on one machine. To go on:
  bin/tugline dev                            keep a hub and a runner running here
  bin/tugline run --repo . --harness claude "…"   give an agent work in this repository
  bin/tugline harness list                   which agents are installed, and signed in
  bin/tugline hub run --help                 a hub for a team; bin/tugline hub ticket lets machines join
T
