#!/usr/bin/env bash
# What recording costs: a pipe ping-pong on one CPU (the worst case: nothing but switches
# and wakings) with and without aitraced, interleaved, and aitraced's own CPU
# time and bytes per event. Prints each pair and the medians. Needs root and
# perf; run it on an otherwise idle machine.
#
#   bench/overhead.sh [PAIRS]
set -euo pipefail
cd "$(dirname "$0")/.."
pairs=${1:-5}
directory=$(mktemp -d /dev/shm/aitrace-bench.XXXXXX)
trap 'rm -rf "$directory"' EXIT
cat >"$directory/config" <<TEXT
ring { path: "$directory/run/ring" }
rotation { directory: "$directory/trace" min_free_mb: 0 }
snapshots { directory: "$directory/snapshots" }
control { socket: "$directory/run/sock" group: "root" }
TEXT
pingpong() { taskset -c 1 perf bench sched pipe -l 300000 2>&1 | awk '/usecs\/op/ { print $1 * 1000 }'; }
status() { build/bin/aitracectl --socket "$directory/run/sock" --json status; }
number() { sed -nE "s/^ *\"$1\": \"?([0-9.]+)\"?,?$/\1/p" | head -n 1; }
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

for ((i = 0; i < pairs; ++i)); do
  off=$(pingpong)
  build/bin/aitraced -c "$directory/config" 2>/dev/null &
  daemon=$!
  until status >/dev/null 2>&1; do sleep 0.05; done
  on=$(pingpong)
  report=$(status)
  kill "$daemon" && wait "$daemon"
  cost=$(number cpu_ns_per_event <<<"$report")
  lost=$(grep -c '"cause"' <<<"$report" || true)
  rm -rf "$directory"/{run,trace,snapshots}
  echo "$off $on $cost $lost"
done | tee "$directory/pairs" | awk '{ printf "round trip %d ns without, %d ns with (%+.1f %%); aitraced %.0f ns an event; losses: %d\n", $1, $2, ($2 / $1 - 1) * 100, $3, $4 }'
awk '{ print ($2 / $1 - 1) * 100 }' "$directory/pairs" | median | xargs printf 'median slowdown %.1f %%\n'
awk '{ print $3 }' "$directory/pairs" | median | xargs printf 'median of aitraced: %.0f ns an event\n'
