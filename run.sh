#!/usr/bin/env bash
# Installs what is missing, builds, records this machine for a short while with
# the shipped defaults, takes a dump, and shows what came of it.
#
#   ./run.sh [--seconds N] [-o FILE]
set -euo pipefail
cd "$(dirname "$0")"
. scripts/common.sh

seconds=10
output=$PWD/aitrace-demo.perfetto-trace
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    -o) output=${2:?-o needs a file}; shift 2 ;;
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "unknown option $1 (see --help)" >&2; exit 2 ;;
  esac
done
case $seconds in '' | *[!0-9]*) echo "--seconds: a whole number was expected" >&2; exit 2 ;; esac

install_packages scripts/packages.txt
build_preset release --target aitraced aitracectl

say "this machine"
missing() { printf '  lacks %s\n' "$*"; }
[ -e /sys/kernel/btf/vmlinux ] || die "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF): the eBPF probes cannot work here"
[ -d /sys/devices/system/cpu/cpu0/cpufreq ] || missing "a cpufreq driver: no CPU frequency in the trace"
[ -d /run/systemd/system ] || missing "systemd: aitraced runs in the foreground of this script"
[ -e /dev/nvidiactl ] || missing "an NVIDIA GPU: nothing of a GPU in the trace"

# The shipped defaults, but for places: nothing of an installed aitraced is touched.
directory=$(mktemp -d /tmp/aitrace-run.XXXXXX)
config=$directory/aitraced.pbtxt
sed -e "s|/run/aitrace|$directory/run|; s|/var/lib/aitrace|$directory|" packaging/aitraced.pbtxt >"$config"
log=$directory/log
daemon=
clean_up() {
  if [ -n "$daemon" ]; then as_root kill "$daemon" 2>/dev/null || true; wait "$daemon" 2>/dev/null || true; fi
  as_root rm -rf "$directory" "/dev/shm/aitrace$(printf '%s' "$directory/run/ring" | tr / -)"
}
trap clean_up EXIT
ctl() { as_root build/bin/aitracectl --socket "$directory/run/control.sock" "$@"; }

say "recording for $seconds s (shipped defaults, places below $directory)"
exec_as_root build/bin/aitraced -c "$config" >"$log" 2>&1 &
daemon=$!
until ctl status >/dev/null 2>&1; do
  kill -0 "$daemon" 2>/dev/null || { cat "$log" >&2; die "aitraced did not start"; }
  sleep 0.1
done
sleep "$seconds"

say "dump"
ctl dump --last "${seconds}s" --reason "run.sh" -o "$output"
as_root chown "$(id -u):$(id -g)" "$output"
say "status"
ctl status
say "events by kind"
ctl status --json | sed -n 's/^ *"event": "\(.*\)",$/\1/p; s/^ *"count": "\([0-9]*\)"$/\1/p' |
  paste - - | awk '/^[a-z]/ { printf "  %-22s %s\n", $1, $2 }'

cat <<TEXT

The trace: $output
Open it at https://ui.perfetto.dev (it stays in your browser), or with
trace_processor_shell. Install aitraced as a service: see docs/operations.md.
TEXT
