#!/usr/bin/env bash
# Make docs/screenshots/: every screen in a graphical Emacs on a display that nobody sees, light and dark, the main ones in
# a terminal, and the recording of README. A server that says what scripts/screenshots.py has written down answers; the
# tools work for real. Only some of it: scripts/screenshots.sh light dark terminal recording
# To see it otherwise: SCREENSHOT_COLUMNS=80 SCREENSHOT_POINTS=18 SCREENSHOT_LANG=C SCREENSHOT_PLACE=/tmp/narrow
set -euo pipefail
cd "$(dirname "$0")/.."

pictures=${SCREENSHOT_PLACE:-$PWD/docs/screenshots}
columns=${SCREENSHOT_COLUMNS:-110}
have() { command -v "$1" >/dev/null 2>&1; }
die() { printf 'screenshots: %s\n' "$*" >&2; exit 1; }

missing=()
have Xvfb || missing+=(xvfb)
have tmux || missing+=(tmux)
emacs --batch --eval "(progn (package-initialize) (unless (locate-library \"markdown-mode\") (kill-emacs 1)))" \
    >/dev/null 2>&1 || missing+=(elpa-markdown-mode)
have fc-list && fc-list | grep DejaVuSansMono >/dev/null || missing+=(fontconfig fonts-dejavu)
[ ${#missing[@]} = 0 ] || die "missing; run: sudo apt-get install -y ${missing[*]}"
graphical=$(scripts/graphical-emacs.sh)

home=$(mktemp -d)
server=
model=
finish() {
    pyagentd stop >/dev/null 2>&1 || true
    tmux -S "$home/tmux" kill-server 2>/dev/null || true
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$model" ] || kill "$model" 2>/dev/null || true
    rm -rf "$home"
}
trap finish EXIT

# The server picks a free display and says which once it can be used. Without -noreset it starts anew when its only
# client leaves, and Emacs connects twice.
mkfifo "$home/display"
Xvfb -displayfd 3 -screen 0 2560x1440x24 -nolisten tcp -noreset 3>"$home/display" >"$home/log" 2>&1 &
server=$!
read -r -t 20 number <"$home/display" || die "the display did not start: $(cat "$home/log")"

PYTHONPATH=$PWD .venv/bin/python scripts/screenshots.py "$home/model" &
model=$!
for _ in $(seq 100); do
    [ ! -s "$home/model" ] || break
    sleep 0.1
done
[ -s "$home/model" ] || die "the model's server did not start"

unset PYAGENTD_BACKEND
export PATH=$PWD/.venv/bin:$PATH PYAGENTD_CONFIG=$home/config.toml PYAGENTD_TITLES=off
export ANTHROPIC_API_KEY=none ANTHROPIC_BASE_URL
ANTHROPIC_BASE_URL=$(cat "$home/model")
export GSETTINGS_BACKEND=memory  # GTK would start a service for its settings
export SCREENSHOT_PLACE=$pictures DISPLAY=:$number
mkdir -p "$pictures"

# The pictures show its name.
project=${TMPDIR:-/tmp}/shop
mkdir "$project" || die "move $project away"
trap 'finish; rm -rf "$project"' EXIT

fresh_project() {
    rm -rf "${project:?}"/*
    mkdir "$project"/{shop,tests}
    printf 'test:\n\t@python3 -B -m unittest -q\n' >"$project/Makefile"
    touch "$project"/{shop,tests}/__init__.py
    cat >"$project/shop/prices.py" <<'PYTHON'
"""Prices, in cents."""


def discounted(cents: int, percent: int) -> int:
    """Return the price with a discount of PERCENT."""
    return cents - percent
PYTHON
    cat >"$project/shop/orders.py" <<'PYTHON'
"""Orders."""

from shop.prices import discounted


def total(prices: list[int], percent: int) -> int:
    """Return what an order costs."""  # TODO: empty orders
    return sum(discounted(cents, percent) for cents in prices)
PYTHON
    cat >"$project/shop/invoices.py" <<'PYTHON'
"""Invoices."""

from shop.prices import discounted


def line(name: str, cents: int, percent: int) -> str:
    """Return the line of an invoice."""
    return f"{name}: {discounted(cents, cents * percent // 100) / 100:.2f}"
PYTHON
    cat >"$project/tests/test_prices.py" <<'PYTHON'
import unittest

from shop.prices import discounted


class Prices(unittest.TestCase):
    def test_a_discount_is_a_percentage(self):
        self.assertEqual(discounted(1000, 10), 900)
PYTHON
}

# What was done before: the lists have more than one line.
earlier_sessions() {
    pyagentd new "Open ends" --root "$project" >/dev/null
    pyagentd send open "What is left to do?" --headless >/dev/null
    pyagentd new "Modules" --root "$project" >/dev/null
    pyagentd send modules "Which modules are there?" --headless >/dev/null
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
        export SCREENSHOT_SCENE=terminal SCREENSHOT_THEME=terminal TERM=xterm-256color LANG=${SCREENSHOT_LANG:-C.UTF-8}
        export SCREENSHOT_COLUMNS=$columns SCREENSHOT_TMUX=$home/tmux SCREENSHOT_TEXT=$home/terminal.txt
        tmux -S "$home/tmux" -u -f /dev/null new-session -d -s e -x "$columns" -y 36 \
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

# The film at the top of README.
recording_scene() {
    local place=$home/recording
    fresh_project
    mkdir -p "$place"
    (
        cd "$project"
        export HOME=$place PYAGENTD_SESSIONS_DIR=$place/sessions PYAGENTD_RUNTIME_DIR=$place/run
        export SCREENSHOT_THEME=dark TERM=xterm-256color LANG=C.UTF-8
        earlier_sessions
        "$OLDPWD/.venv/bin/python" "$OLDPWD/scripts/recording.py" "$home/recording.svg"
        cp "$home/recording.svg" "$pictures"
        pyagentd stop >/dev/null 2>&1 || true
    )
}

for scene in ${*:-light dark terminal recording}; do
    case $scene in
        terminal) terminal_scene ;;
        recording) recording_scene ;;
        *) graphical_scene all "$scene" ;;
    esac
done
printf 'screenshots: %s\n' "$pictures"/*.{png,svg}
