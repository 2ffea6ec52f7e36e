#!/usr/bin/env bash
# Prepare a checkout: Emacs with its packages, and .venv with pyagentd and its development tools.
# Installs Debian packages when it may (apt-get, and root or sudo without a password), else prints the one line to run.
# Safe to run again; when nothing changed since the last time it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.venv
readonly STAMP=$VENV/.setup-stamp
readonly SERVERS=tests/mcp

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

emacs_has() {  # LIBRARY
    emacs --batch --eval "(progn (require 'package) (package-initialize) (unless (locate-library \"$1\") (kill-emacs 1)))" \
        >/dev/null 2>&1
}

# What the stamp stands for: same declarations, same interpreter, same place, tools still there.
fingerprint() {
    { cat pyproject.toml scripts/setup.sh; pwd; have emacs && command -v emacs; have tmux && command -v tmux; \
        have bwrap && command -v bwrap; have sshd && command -v sshd; have npm && cat $SERVERS/package-lock.json; true; } \
        | cksum
}

up_to_date() {
    [ -f $STAMP ] && have emacs && [ "$(cat $STAMP)" = "$(fingerprint)" ] && $VENV/bin/python -c '' 2>/dev/null
}

python_fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if have "$name" && python_fits "$name"; then echo "$name"; return; fi
    done
    die "Python 3.11 or newer is missing (python3 is $(python3 --version 2>&1 || echo absent)); install it and run this again"
}

# Debian packages that are missing: those needed, then those only some tests or niceties want.
needed_packages() {
    have emacs || echo emacs-nox
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv python3-pip
}
wanted_packages() {
    have emacs && emacs_has markdown-mode || echo elpa-markdown-mode
    have emacs && emacs_has package-lint || echo elpa-package-lint  # make lint-el
    have emacs && emacs_has epc || echo elpa-epc  # a test that talks to the daemon with it
    have makeinfo || echo texinfo  # make doc
    have tmux || echo tmux
    have sshd || [ -x /usr/sbin/sshd ] || echo openssh-server openssh-client  # make test-remote
    have bwrap || [ "$(uname)" != Linux ] || echo bubblewrap  # confines the commands of agents
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
    have apt-get && as_root true 2>/dev/null
}

apt_install() {  # PACKAGE...
    as_root apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

install_packages() {
    local needed wanted
    needed=$(needed_packages | xargs)
    wanted=$(wanted_packages | xargs)
    [ -n "$needed$wanted" ] || return 0
    if may_install; then
        say "installing $needed $wanted (Debian packages)"
        export DEBIAN_FRONTEND=noninteractive
        # shellcheck disable=SC2086  # lists of package names
        if as_root apt-get update -qq && apt_install $needed $wanted; then return 0; fi
        # shellcheck disable=SC2086
        [ -z "$needed" ] || apt_install $needed || die "could not be installed: $needed"
        # shellcheck disable=SC2086
        [ -z "$wanted" ] || apt_install $wanted || say "could not be installed: $wanted; it goes without"
    elif [ -n "$needed" ]; then
        die "missing: $needed. Run: sudo apt-get update && sudo apt-get install -y $needed $wanted"
    else
        say "optional: sudo apt-get install -y $wanted"
    fi
}

make_venv() {
    if ! python_fits $VENV/bin/python; then
        say "creating $VENV with $("$PYTHON" --version)"
        rm -rf $VENV
        "$PYTHON" -m venv $VENV
    fi
    say "installing Python packages into $VENV"
    $VENV/bin/python -m pip install -q --disable-pip-version-check --use-pep517 -e '.[dev]'
    # Without byte code the first start of the daemon takes seconds instead of a fraction of one.
    $VENV/bin/python -m compileall -q pyagentd "$($VENV/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
        >/dev/null || true
}

# Reference servers of the Model Context Protocol, pinned, for the tests that talk to them; others go without.
install_servers() {
    have npm && [ -f $SERVERS/package-lock.json ] || return 0
    cmp -s $SERVERS/package-lock.json .mcp-servers/package-lock.json && [ -d .mcp-servers/node_modules ] && return 0
    say "installing MCP servers for the tests into .mcp-servers"
    mkdir -p .mcp-servers
    cp $SERVERS/package.json $SERVERS/package-lock.json .mcp-servers
    npm ci --prefix .mcp-servers --ignore-scripts --no-audit --no-fund --silent >/dev/null 2>&1 ||
        { rm -rf .mcp-servers; say "npm could not install them; the tests that need them are skipped"; }
}

if up_to_date; then exit 0; fi
PYTHON=$(find_python)
install_packages
make_venv
install_servers
fingerprint > $STAMP
say "done; the command line is $VENV/bin/pyagentd"
