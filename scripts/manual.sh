#!/usr/bin/env bash
# Make the manual in DIRECTORY (default: build/manual): pyagentd.texi, pyagentd.info with the file "dir" for Emacs's list
# of manuals, and pyagentd.html.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-build/manual}
command -v makeinfo >/dev/null || { echo "manual: makeinfo is missing; run: sudo apt-get install -y texinfo" >&2; exit 1; }
mkdir -p "$target"
target=$(cd "$target" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

.venv/bin/python scripts/manual.py topics >"$work/topics.texi"
.venv/bin/python scripts/manual.py commands >"$work/commands.texi"
emacs --batch -l scripts/manual.el -f manual-write docs/manual/pyagentd.org "$work/pyagentd.texi" \
    "$work/topics.texi" "$work/commands.texi" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
cp "$work/pyagentd.texi" "$target"
# It makes the menus, and warns that nobody else did.
makeinfo --no-warn --no-split -o "$target/pyagentd.info" "$work/pyagentd.texi"
makeinfo --no-warn --html --no-split -o "$target/pyagentd.html" "$work/pyagentd.texi"
rm -f "$target/dir"
install-info --quiet "$target/pyagentd.info" "$target/dir"
echo "manual: $target/pyagentd.info (read it with: emacs --eval '(info \"$target/pyagentd.info\")') and .html"
