#!/usr/bin/env bash
# Make tests/fixtures/VERSION.tar.gz: what this version leaves in a home, for later versions to open.
# Once for each version that changes a format, before its release; a fixture that was released is never made again.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
program=$root/.venv/bin/pyagentd
version=$("$program" --version | cut -d' ' -f2)
target=$root/tests/fixtures/$version.tar.gz
[ "${1:-}" = --force ] || [ ! -e "$target" ] || { echo "$target exists; --force makes it anew" >&2; exit 1; }

home=/tmp/pyagentd-fixture # the same on each machine, because sessions know where they work
rm -rf "$home"
mkdir -p "$home"/{work/.pyagentd/presets,config/pyagentd/presets} "$root/tests/fixtures"
for name in "${!PYAGENTD_@}"; do unset "$name"; done
export HOME=$home XDG_CONFIG_HOME=$home/config XDG_STATE_HOME=$home/state XDG_DATA_HOME=$home/data
export PYAGENTD_SESSIONS_DIR=$home/sessions PYAGENTD_RUNTIME_DIR=$home/run
trap '"$program" stop >/dev/null 2>&1 || true; rm -rf "$home"' EXIT

cat > "$home/config/pyagentd/config.toml" <<TOML
[default]
backend = "offline"

[log]
level = "warning"

[profile.reviews]
allow = ["tool:view:.*"]
ask = ["tool:bash:make.*"]

[backend.local]
kind = "openai-compatible"
base_url = "http://127.0.0.1:11434/v1"
model = "qwen3"
TOML
preset() { printf -- '---\ndescription: %s\nbackend: offline\nmodel: offline\ntools: [Read, Glob, Grep]\n---\n%s\n' "$1" "$2"; }
preset "The user's own" "You review." > "$home/config/pyagentd/presets/reviewer.md"
preset "The project's own" "You test." > "$home/work/.pyagentd/presets/tester.md"
printf '# Notes\n\nThe parser lives in parser.py.\n' > "$home/work/notes.md"
printf 'def parse(line: str) -> list[str]:\n    return line.split()\n' > "$home/work/parser.py"
cd "$home/work"

ask() { "$program" "$@" --allow '.*' </dev/null >/dev/null; }
# The value at the keys $1 of the JSON that the rest of the command prints.
of() { local keys=$1; shift; "$program" "$@" --json | "$root/.venv/bin/python" -c "import json, sys; print(json.load(sys.stdin)$keys)"; }
ask ask "Read notes.md and parser.py"
ask ask -c "Explore with a sub-agent which files there are"
ask ask -c "What is in notes.md?"
id=$(of "[0]['session_id']" sessions)
"$program" rename "$id" "The parser" >/dev/null
"$program" regenerate "$id" </dev/null >/dev/null
first=$(of "[0]['message_id']" branch "$id" --list)
"$program" branch "$id" --at "$first" --name other >/dev/null
ask send "$id" "Read parser.py"
"$program" rewind "$id" --to "$first" >/dev/null
"$program" schedule add "$id" "Read notes.md" --cron "0 9 * * 1" --timezone UTC --for never >/dev/null
"$program" presets --trust >/dev/null
"$program" agent init helper-one >/dev/null
ask send helper-one "Read notes.md"
"$program" context save helper-one >/dev/null
"$program" settings idle_timeout 2h >/dev/null
"$program" mission "Count the files" --signature '{count :int}' --headless >/dev/null || true
"$program" ask "Read notes.md" --preset reviewer </dev/null >/dev/null
"$program" archive "$(of "[0]['session_id']" sessions)" >/dev/null
"$program" stop >/dev/null
tar --owner=0 --group=0 --numeric-owner --sort=name -C "$home" -czf "$target" sessions sessions-agents config work
ls -l "$target"
