#!/usr/bin/env bash
# Make docs/screenshots/*.png: every screen in a graphical Emacs on a display that nobody sees, light and dark, and the main
# ones in a terminal. The offline stand-in answers.
set -euo pipefail
cd "$(dirname "$0")/.."

pictures=$PWD/docs/screenshots
have() { command -v "$1" >/dev/null 2>&1; }
die() { printf 'screenshots: %s\n' "$*" >&2; exit 1; }

missing=()
have Xvfb || missing+=(xvfb)
have tmux || missing+=(tmux)
emacs --batch --eval "(progn (package-initialize) (unless (locate-library \"markdown-mode\") (kill-emacs 1)))" \
    >/dev/null 2>&1 || missing+=(elpa-markdown-mode)
have fc-list && fc-list | grep -q DejaVuSansMono || missing+=(fontconfig fonts-dejavu)
[ ${#missing[@]} = 0 ] || die "missing; run: sudo apt-get install -y ${missing[*]}"
graphical=$(scripts/graphical-emacs.sh)

home=$(mktemp -d)
server=
finish() {
    pyagentd stop >/dev/null 2>&1 || true
    tmux -S "$home/tmux" kill-server 2>/dev/null || true
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$home"
}
trap finish EXIT

# The server picks a free display and says which once it can be used. Without -noreset it starts anew when its only
# client leaves, and Emacs connects twice.
mkfifo "$home/display"
Xvfb -displayfd 3 -screen 0 1280x900x24 -nolisten tcp -noreset 3>"$home/display" >"$home/log" 2>&1 &
server=$!
read -r -t 20 number <"$home/display" || die "the display did not start: $(cat "$home/log")"

export PATH=$PWD/.venv/bin:$PATH PYAGENTD_BACKEND=offline PYAGENTD_OFFLINE_PACE=0.02 PYAGENTD_CONFIG=$home/config.toml
export PYAGENTD_TITLES=off
export GSETTINGS_BACKEND=memory  # GTK would start a service for its settings
export SCREENSHOT_PLACE=$pictures DISPLAY=:$number
mkdir -p "$pictures"

# The pictures show its name.
project=${TMPDIR:-/tmp}/project
mkdir "$project" || die "move $project away"
trap 'finish; rm -rf "$project"' EXIT

fresh_project() {
    rm -rf "${project:?}"/*
    cp -r presets README.md "$project"
}

# What was done before: the lists have more than one line.
earlier_sessions() {
    pyagentd new "Weekly report" --root "$project" >/dev/null
    pyagentd send weekly "What is in README.md?" --headless >/dev/null
    pyagentd rename weekly "Weekly report" >/dev/null
    pyagentd new "Dead links" --root "$project" >/dev/null
    pyagentd send dead "Search the files in presets for \`https\`" --headless >/dev/null
    pyagentd rename dead "Dead links" >/dev/null
}

# SCENE THEME: one Emacs, with a home of its own
graphical_scene() {
    local place=$home/$1-$2
    fresh_project
    mkdir -p "$place"
    (
        cd "$project"
        export HOME=$place PYAGENTD_SESSIONS_DIR=$place/sessions PYAGENTD_RUNTIME_DIR=$place/run
        export SCREENSHOT_SCENE=$1 SCREENSHOT_THEME=$2
        earlier_sessions
        # shellcheck disable=SC2086  # a command with its arguments
        timeout 450 $graphical -q -l "$OLDPWD/scripts/screenshots.el" -f screenshots-take \
            || die "Emacs did not get that far ($1, $2)"
        pyagentd stop >/dev/null 2>&1 || true
    )
}

# In a terminal: what tmux has on its screen is drawn by the graphical Emacs.
terminal_scene() {
    local place=$home/terminal
    fresh_project
    mkdir -p "$place"
    (
        cd "$project"
        export HOME=$place PYAGENTD_SESSIONS_DIR=$place/sessions PYAGENTD_RUNTIME_DIR=$place/run
        export SCREENSHOT_SCENE=terminal SCREENSHOT_THEME=terminal TERM=xterm-256color LANG=C.UTF-8
        export SCREENSHOT_TMUX=$home/tmux SCREENSHOT_TEXT=$home/terminal.txt
        tmux -S "$home/tmux" -u -f /dev/null new-session -d -s e -x 110 -y 36 \
            emacs -nw -q -l "$OLDPWD/scripts/screenshots.el" -f screenshots-take
        for _ in $(seq 600); do
            [ ! -f "$home/terminal.txt.done" ] || break
            sleep 0.2
        done
        [ -f "$home/terminal.txt.done" ] || die "Emacs in a terminal did not get that far"
        for text in "$home"/terminal.txt.*.ansi; do
            # shellcheck disable=SC2086
            SCREENSHOT_TEXT=$text timeout 60 $graphical -q -l "$OLDPWD/scripts/screenshots.el" \
                -f screenshots-draw-terminal || die "a terminal's picture could not be drawn"
        done
        pyagentd stop >/dev/null 2>&1 || true
    )
}

for scene in ${*:-light dark terminal}; do
    case $scene in
        terminal) terminal_scene ;;
        *) graphical_scene all "$scene" ;;
    esac
done
printf 'screenshots: %s\n' "$pictures"/*.png
