#!/usr/bin/env bash
# Make docs/screenshot.png: a session in a graphical Emacs on a display that nobody sees, at the moment when the overlay
# shows what an agent calls.
set -euo pipefail
cd "$(dirname "$0")/.."

picture=$PWD/docs/screenshot.png
have() { command -v "$1" >/dev/null 2>&1; }
die() { printf 'screenshot: %s\n' "$*" >&2; exit 1; }
emacs_has() { emacs --batch --eval "(unless $1 (kill-emacs 1))" >/dev/null 2>&1; }

missing=()
have Xvfb || missing+=(xvfb)
# It draws its own picture, which takes a build with cairo.
emacs_has "(fboundp 'x-export-frames)" || missing+=(emacs-gtk)
emacs_has "(progn (package-initialize) (locate-library \"markdown-mode\"))" || missing+=(elpa-markdown-mode)
have fc-list && fc-list | grep -q DejaVuSansMono || missing+=(fontconfig fonts-dejavu)
[ ${#missing[@]} = 0 ] || die "missing; run: sudo apt-get install -y ${missing[*]}"

home=$(mktemp -d)
project=${TMPDIR:-/tmp}/project  # the picture shows its name
server=
finish() {
    pyagentd stop >/dev/null 2>&1 || true
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$home"
}
trap finish EXIT
mkdir "$project" || die "move $project away"
trap 'finish; rm -rf "$project"' EXIT
cp -r presets "$project"

export PYAGENTD_SESSIONS_DIR=$home/sessions PYAGENTD_RUNTIME_DIR=$home/run PYAGENTD_CONFIG=$home/config.toml
export PYAGENTD_BACKEND=offline PYAGENTD_OFFLINE_PACE=0.02
export PATH=$PWD/.venv/bin:$PATH

# The server picks a free display and says which once it can be used. Without -noreset it starts anew when its only
# client leaves, and Emacs connects twice.
mkfifo "$home/display"
Xvfb -displayfd 3 -screen 0 1280x900x24 -nolisten tcp -noreset 3>"$home/display" >"$home/log" 2>&1 &
server=$!
read -r -t 20 number <"$home/display" || die "the display did not start: $(cat "$home/log")"

mkdir -p docs
script=$PWD/scripts/screenshot.el
export DISPLAY=:$number SCREENSHOT=$picture
(cd "$project" && timeout 120 emacs -q --no-splash -l "$script" -f screenshot-take) \
    || die "Emacs did not get that far"
printf 'screenshot: %s\n' "$picture"
