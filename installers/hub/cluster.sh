#!/bin/sh
# Makes, starts, upgrades and stops the three nodes of compose.yaml. Running it twice
# changes nothing.
set -eu
cd "$(dirname "$0")"

if docker compose version >/dev/null 2>&1; then
  compose() { docker compose -p tugline-hub -f compose.yaml "$@"; }
elif command -v docker-compose >/dev/null 2>&1; then
  compose() { docker-compose -p tugline-hub -f compose.yaml "$@"; }
else
  echo "cluster.sh: neither \`docker compose\` nor docker-compose is here; install one" >&2
  exit 2
fi

# in_hub1 runs tugline beside the first node, as whoever may do everything there.
in_hub1() { compose exec -T hub1 /tugline "$@"; }

ready() { # [NODE]
  i=0
  until compose exec -T "${1:-hub1}" /tugline hub ready >/dev/null 2>&1; do
    i=$((i + 1))
    if [ $i -gt 60 ]; then
      echo "cluster.sh: ${1:-hub1} is not ready; look at: docker logs" >&2
      exit 1
    fi
    sleep 1
  done
}

# made says whether the containers of all three nodes are there, running or not.
made() {
  for n in hub1 hub2 hub3; do
    [ -n "$(compose ps -a -q "$n")" ] || return 1
  done
}

case ${1:-} in
up)
  if made; then
    # All at once: one node alone is no majority and would wait for the others.
    compose start
    ready
  else
    compose up -d hub1
    ready
    # A node that has joined before does not look at the ticket.
    TUGLINE_TICKET=$(in_hub1 hub ticket --role hub --uses 2 --ttl 15m)
    export TUGLINE_TICKET
    compose up -d hub2 hub3
  fi
  in_hub1 hub members
  echo "People and runners reach the cluster at https://localhost:7440, :7450 and :7460."
  ;;
upgrade)
  # One node after another: two of three carry on meanwhile.
  for n in hub2 hub3 hub1; do
    compose up -d --no-deps --force-recreate "$n"
    ready "$n"
  done
  in_hub1 hub members
  ;;
down)
  compose stop
  ;;
destroy)
  # All three volumes: everything that the cluster knows.
  if [ "${2:-}" != --yes ]; then
    echo "cluster.sh: this deletes everything the cluster knows; say: cluster.sh destroy --yes" >&2
    exit 2
  fi
  compose down -v
  ;;
*)
  echo "usage: cluster.sh up | down | upgrade | destroy --yes" >&2
  exit 2
  ;;
esac
