#!/usr/bin/env bash
# The main job: a session in Emacs, a model that reads files and spawns an agent, everything on disk.
# On a terminal it opens Emacs with the prompt typed in; elsewhere it runs the same through Emacs in batch, twice,
# and prints what happened. Without a key the offline stand-in answers.
set -euo pipefail
cd "$(dirname "$0")/.."

home=$PWD/.demo
export PYAGENTD_SESSIONS_DIR=$home/sessions
export PYAGENTD_RUNTIME_DIR=$home/run
# A socket's path must be short; a checkout's may be long.
if [ ${#PYAGENTD_RUNTIME_DIR} -gt 80 ]; then PYAGENTD_RUNTIME_DIR=$(mktemp -d); fi
export PATH=$PWD/.venv/bin:$PATH
mkdir -p "$home"
if [ -n "${PYAGENTD_BACKEND:-}" ]; then
    echo "PYAGENTD_BACKEND is set: $PYAGENTD_BACKEND answers."
elif [ -n "${ANTHROPIC_API_KEY:-}" ] || [ -n "${ANTHROPIC_BASE_URL:-}" ]; then
    echo "ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL is set: a model of Anthropic's API answers."
else
    answers=offline
    if found=$(pyagentd models --local); then
        echo "No ANTHROPIC_API_KEY, but a server on this machine: $found"
        if [ -n "${LOCAL:-}" ]; then answers=local
        elif [ -t 0 ] && [ -t 1 ]; then
            read -r -p "Shall it answer? [Y/n] " reply
            case $reply in [nN]*) ;; *) answers=local ;; esac
        else echo "To have it answer: make demo LOCAL=1"; fi
    fi
    if [ $answers = local ]; then
        export PYAGENTD_CONFIG=$home/config.toml
        rm -f "$PYAGENTD_CONFIG"
        pyagentd models --local --use | sed -n 's/^model = /Its model answers: /p'
        pyagentd stop >/dev/null 2>&1 || true
    else
        export PYAGENTD_BACKEND=offline
        echo "No ANTHROPIC_API_KEY: the offline stand-in answers (it uses the tools, but is no language model)."
    fi
fi

# -q and not -Q: the packages of the system (epc) are wanted.
run_emacs() { emacs -q --no-splash "$@"; }

if [ -t 0 ] && [ -t 1 ]; then
    export PYAGENTD_OFFLINE_PACE=${PYAGENTD_OFFLINE_PACE:-0.03}
    window=(-nw)
    if [ -n "${DISPLAY:-}" ]; then window=(); fi
    run_emacs "${window[@]}" -l scripts/demo.el -f demo-open
else
    export PYAGENTD_OFFLINE_PACE=${PYAGENTD_OFFLINE_PACE:-0.01}  # slow enough to see the agent at work
    trap 'pyagentd stop >/dev/null 2>&1 || true' EXIT
    state=$(mktemp)
    DEMO_STATE=$state run_emacs --batch -l scripts/demo.el -f demo-first
    DEMO_STATE=$state run_emacs --batch -l scripts/demo.el -f demo-second
    rm -f "$state"
fi
