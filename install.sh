#!/bin/sh
# Installs the command `tollgate` from a release, for the current user and without root.
#
#   curl -fsSL https://github.com/@REPOSITORY@/releases/latest/download/install.sh | sh
#   sh install.sh --version 0.1.0 --to ~/bin
#
# The steps, each of which is printed:
#   1. choose the archive for this system;
#   2. download it, and the file SHA256SUMS of the same release, into a temporary folder, over https only;
#   3. compare its SHA-256 with that file, and stop if they differ;
#   4. put the program `tollgate` into a folder of the user (~/.local/bin), replacing an older one in one step.
# Nothing else is changed: no shell profile, no other folder, no service.
set -eu

# Everything is in a function that is called on the last line, so that a script that was cut off does nothing.
main() {
  # A release has its own address here. Elsewhere, TOLLGATE_RELEASES names it.
  repository='@REPOSITORY@'
  version=latest
  folder=${TOLLGATE_BIN:-${HOME:+$HOME/.local/bin}}
  target=
  while [ $# -gt 0 ]; do
    case $1 in
      --version) version=${2:?--version needs a version, such as 0.1.0}; shift 2 ;;
      --to) folder=${2:?--to needs a folder}; shift 2 ;;
      --target) target=${2:?--target needs a target, such as x86_64-unknown-linux-musl}; shift 2 ;;
      -h | --help) usage; exit 0 ;;
      *) usage >&2; exit 2 ;;
    esac
  done
  [ -n "$folder" ] || fail 'HOME is not set' 'give a folder with --to DIR'
  releases=${TOLLGATE_RELEASES:-https://github.com/$repository/releases}
  # A folder of this machine, for releases that were downloaded before; otherwise only https, also after a redirect.
  case $releases in
    file://*) protocol='=file' ;;
    *) protocol='=https' ;;
  esac
  case $releases in
    file://* | https://*) ;;
    *) fail "$releases does not begin with https://" 'use https, or download the release into a folder and use file://' ;;
  esac
  case $releases in
    *@REPOSITORY@*) fail 'this copy of install.sh is not from a release' 'set TOLLGATE_RELEASES to the address of the releases' ;;
  esac
  [ -n "$target" ] || choose_target
  need tar
  need curl
  if command -v sha256sum >/dev/null 2>&1; then
    sum=sha256sum
  elif command -v shasum >/dev/null 2>&1; then
    sum='shasum -a 256'
  else
    fail 'neither sha256sum nor shasum is installed' 'install one of them: without it the download cannot be verified'
  fi
  case $version in
    latest) from=$releases/latest/download ;;
    *) from=$releases/download/v${version#v} ;;
  esac
  archive=tollgate-$target.tar.gz

  temporary=$(mktemp -d)
  trap 'rm -rf "$temporary"' EXIT
  trap 'exit 1' HUP INT TERM
  say "downloading $from/$archive"
  download "$from/$archive" "$temporary/$archive"
  download "$from/SHA256SUMS" "$temporary/SHA256SUMS"

  wanted=$(awk -v name="$archive" '$2 == name || $2 == "*" name { print $1 }' "$temporary/SHA256SUMS")
  found=$($sum "$temporary/$archive" | cut -d ' ' -f 1)
  [ -n "$wanted" ] || fail "SHA256SUMS does not list $archive" 'nothing was installed; the release is not complete'
  [ "$wanted" = "$found" ] || fail "the checksum of $archive is $found, and the release says $wanted" 'nothing was installed; try again, and report it if it happens again'
  say "verified: SHA-256 $found"

  # Only the bytes of a regular file come out here. A link in the archive has none, and is never followed.
  tar -xzOf "$temporary/$archive" tollgate >"$temporary/tollgate" && [ -s "$temporary/tollgate" ] ||
    fail "$archive does not contain the program tollgate as a regular file" 'nothing was installed; report it'
  mkdir -p "$folder" || fail "cannot make $folder" 'give another folder with --to DIR'
  new=$folder/.tollgate.new.$$
  # Renamed over the old one, so that an agent that starts tollgate now gets one or the other.
  if ! { cp "$temporary/tollgate" "$new" && chmod 755 "$new" && mv -f "$new" "$folder/tollgate"; }; then
    rm -f "$new"
    fail "cannot write to $folder" 'give another folder with --to DIR'
  fi
  say "installed $folder/tollgate: $("$folder/tollgate" --version)"
  case :${PATH:-}: in
    *":$folder:"*) ;;
    *) say "note: $folder is not in PATH; add it to the profile of your shell" ;;
  esac
  say "next: run \`tollgate init --host all && tollgate doctor\` in your project"
}

usage() {
  cat <<'TEXT'
Installs the command `tollgate` for the current user, without root.

Usage: install.sh [--version VERSION] [--to DIR] [--target TARGET]

  --version VERSION  a version such as 0.1.0 [default: the latest]
  --to DIR           the folder [default: TOLLGATE_BIN, else ~/.local/bin]
  --target TARGET    a target such as x86_64-unknown-linux-gnu [default: this system; on Linux musl]

TOLLGATE_RELEASES: the address of the releases, for mirrors: https://... or file:///...
TEXT
}

choose_target() {
  case $(uname -s) in
    Linux) system=unknown-linux-musl ;;
    Darwin) system=apple-darwin ;;
    *) fail "there is no program for $(uname -s)" 'build it with cargo on Linux or macOS' ;;
  esac
  case $(uname -m) in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) fail "there is no program for $(uname -m)" 'build it with cargo' ;;
  esac
  target=$machine-$system
}

download() {
  curl --fail --silent --show-error --location --max-redirs 5 --retry 3 --proto "$protocol" --proto-redir "$protocol" \
    --output "$2" "$1" || fail "cannot download $1" 'check the version and the connection'
}

need() {
  command -v "$1" >/dev/null 2>&1 || fail "$1 is not installed" "install $1, then try again"
}

say() {
  printf '%s\n' "$1"
}

fail() {
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 1
}

main "$@"
