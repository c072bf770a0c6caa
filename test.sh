#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test.
#
#   ./test.sh        format, layers, unit tests (plain, ASan+UBSan, TSan), system tests
#   ./test.sh long   the same with clang-tidy, ten-fold scenarios and soaks
#
# The last line counts what passed, failed and was skipped.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
. scripts/common.sh

mode=${1:-short}
case $mode in
  short) ;;
  long) export AITRACE_LONG=1 ;;
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "unknown mode $mode (see --help)" >&2; exit 2 ;;
esac

passed=0 failed=0 skipped=0
count() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }

finish() {
  echo
  echo "$passed passed, $failed failed, $skipped skipped"
  exit $((failed > 0))
}

# check NAME COMMAND...: one test, by exit status.
check() {
  local name=$1
  shift
  if ("$@"); then
    echo "ok       $name"; count 1 0 0
  else
    echo "FAILED   $name"; count 0 1 0
  fi
}

sources() { git ls-files '*.cc' '*.h' '*.c' 2>/dev/null || find daemon lib ctl tests probes bench -name '*.cc' -o -name '*.h' -o -name '*.c'; }

check_format() { sources | xargs clang-format --dry-run -Werror; }

check_tidy() {
  sources | grep -E '^(lib|daemon|ctl)/.*\.cc$' | xargs -P 2 -n 4 clang-tidy -p build --quiet 2>/dev/null
}

# Runs a build's unit tests and adds their cases to the count.
unit_tests() {
  local preset=$1 binary=$2/bin/unit_tests report line
  report=$(mktemp)
  TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp" "$binary" >"$report" 2>&1
  local status=$?
  # "All tests passed (N assertions in M test cases)" or
  # "test cases: 5 | 4 passed | 1 failed".
  line=$(tail -n 5 "$report")
  local cases fails
  cases=$(sed -nE 's/.*assertions in ([0-9]+) test cases?\)/\1/p; s/^test cases: +([0-9]+) .*/\1/p' <<<"$line" | tail -n 1)
  fails=$(sed -nE 's/^test cases:.* ([0-9]+) failed.*/\1/p' <<<"$line" | tail -n 1)
  cases=${cases:-0} fails=${fails:-0}
  [ "$status" -ne 0 ] && [ "$fails" -eq 0 ] && fails=1
  [ "$cases" -eq 0 ] && fails=1
  if [ "$fails" -gt 0 ]; then tail -n 60 "$report"; fi
  grep -h '^SKIPPED' "$report"
  skipped=$((skipped + $(grep -c '^SKIPPED' "$report")))
  echo "unit tests ($preset): $cases cases, $fails failed"
  count $((cases > fails ? cases - fails : 0)) "$fails" 0
  rm -f "$report"
}

# Adds the last line of the system tests, "N passed, N failed, N skipped".
system_tests() {
  local report
  report=$(mktemp)
  as_root env AITRACE_LONG="${AITRACE_LONG:-}" python3 tests/system/run.py --build-dir build | tee "$report"
  local line
  line=$(tail -n 1 "$report")
  rm -f "$report"
  if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
    count "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}"
  else
    echo "FAILED   the system tests ended without their count"; count 0 1 0
  fi
}

install_packages scripts/packages.txt scripts/packages-test.txt
check "the code is formatted" check_format
check "arrows point one way" python3 tests/layering_test.py
before=$failed
check "release builds" build_preset release
[ "$failed" -eq "$before" ] || finish
unit_tests release build
[ "$mode" = long ] && check "clang-tidy finds nothing" check_tidy
for preset in asan tsan; do
  check "$preset builds" build_preset "$preset" --target unit_tests
  unit_tests "$preset" "build-$preset"
done
system_tests

finish
