# shellcheck shell=bash
# What run.sh and test.sh share: root, packages, the build. Sourced, from the
# repository's root.

say() { printf '%s\n' "== $*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Runs a command as root: as it is for root, through sudo for anybody else.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "'$1' needs root, and there is no sudo here: run this script as root"
  fi
}

# As as_root, for a command in the background (with &): $! is then its own.
exec_as_root() {
  if [ "$(id -u)" -eq 0 ]; then exec "$@"; else exec sudo "$@"; fi
}

package_names() { grep -hv '^#' "$@"; }

is_installed() {
  [ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" = "install ok installed" ]
}

# Installs those of the packages listed in the given files that are missing.
install_packages() {
  command -v apt-get >/dev/null ||
    die "this installs Debian packages, and apt-get is missing: install those in $* yourself"
  local missing=() name
  for name in $(package_names "$@"); do
    is_installed "$name" || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing ${missing[*]}"
  as_root apt-get update -qq || say "apt-get update failed; trying with the lists that are here"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null || die "apt-get could not install ${missing[*]}"
}

# Configures and builds a preset of CMakePresets.json, quietly unless it fails.
build_preset() {
  local preset=$1 log
  shift
  log=$(mktemp)
  say "building ($preset)"
  if ! { cmake --preset "$preset" -DCMAKE_C_COMPILER_LAUNCHER=ccache \
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache && cmake --build --preset "$preset" "$@"; } >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    die "the build failed; all of its output is in $log"
  fi
  rm -f "$log"
}
