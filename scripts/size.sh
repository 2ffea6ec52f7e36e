#!/usr/bin/env bash
# What a usual installation takes: the wheel of `make dist` in an environment of its own, installed as README says.
# Prints distributions and megabytes, and ends with 1 where they are more than 40 or 90; `EXTRA=full make size` for more.
set -euo pipefail
cd "$(dirname "$0")/.."
extra=${EXTRA:-daemon}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 scripts/dist.py "$work/dist" >/dev/null
python3 -m venv --without-pip "$work/env"
python3 -W ignore -m pip --quiet --python "$work/env/bin/python" install --quiet --no-compile --disable-pip-version-check \
    "$(echo "$work"/dist/*.whl)[$extra]"
"$work/env/bin/pyagentd" --version
packages=$(echo "$work"/env/lib/python*/site-packages)
find "$packages" -name __pycache__ -prune -exec rm -rf {} + # made while it ran
distributions=$(find "$packages" -maxdepth 1 -name '*.dist-info' | wc -l)
megabytes=$(($(du -sk --apparent-size "$packages" | cut -f 1) / 1024))
"$work/env/bin/python" -m compileall -q "$packages" || true
compiled=$(($(du -sk --apparent-size "$packages" | cut -f 1) / 1024))
echo "pyagentd[$extra]: $distributions distributions, $megabytes MB, $compiled MB with byte code"
du -sk --apparent-size "$packages"/*/ | sort -rn | head -8 | awk '{n = split($2, p, "/"); printf "  %5.1f MB  %s\n", $1 / 1024, p[n - 1]}'
[ "$extra" != daemon ] || { [ "$distributions" -le 40 ] && [ "$compiled" -le 90 ]; } || { echo "more than 40 distributions or 90 MB" >&2; exit 1; }
