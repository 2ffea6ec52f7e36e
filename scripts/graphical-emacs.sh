#!/usr/bin/env bash
# Print the command of an Emacs that can draw a picture of itself: the installed one if it can, else Debian's emacs-gtk of the
# same version, unpacked beside it (.graphical/), where nothing else notices. Its libraries are installed if need be.
set -euo pipefail
cd "$(dirname "$0")/.."

place=$PWD/.graphical
die() { printf 'graphical-emacs: %s\n' "$*" >&2; exit 1; }
draws() { "$@" --batch --eval "(unless (fboundp 'x-export-frames) (kill-emacs 1))" >/dev/null 2>&1; }

if draws emacs; then echo emacs; exit 0; fi
unpacked() {
    binary=$(find "$place" -name emacs-gtk -path '*/bin/*' 2>/dev/null | head -n 1)
    dump=$(find "$place" -name emacs.pdmp 2>/dev/null | head -n 1)
    [ -n "$binary" ] && [ -n "$dump" ] && draws "$binary" "--dump-file=$dump"
}
if ! unpacked; then
    command -v apt-get >/dev/null || die "no graphical Emacs here; install one that was built with cairo"
    rm -rf "$place"
    mkdir -p "$place"
    libraries=$(apt-cache depends --no-recommends --no-suggests --no-conflicts --no-replaces emacs-gtk \
        | awk '/ Depends:/ && $2 !~ /^(emacs|<|libelogind)/ { print $2 }')
    # shellcheck disable=SC2086  # names of packages
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $libraries >/dev/null 2>&1 \
        || die "missing; run: sudo apt-get install -y --no-install-recommends $libraries"
    (cd "$place" && apt-get download emacs-gtk >/dev/null 2>&1 && dpkg -x emacs-gtk_*.deb . && rm emacs-gtk_*.deb) \
        || die "the package emacs-gtk could not be fetched"
    unpacked || die "what Debian's package has does not start here"
fi
echo "$binary --dump-file=$dump"
