#!/usr/bin/env bash
# Make dist/: the wheel of the daemon; the Emacs package as a tar file that `package-install-file' takes, with the wheel
# and the manual in it; and dist/elpa, the same as an archive for `package-archives', with the packages it needs.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' pyagentd/__init__.py)
name=pyagentd-$version
grep -q "^;; Version: $version\$" elisp/pyagentd.el || {
    echo "dist: elisp/pyagentd.el is not version $version, as pyagentd/__init__.py is" >&2; exit 1; }

rm -rf dist
mkdir -p dist/elpa
# A tree of its own: what others left in build directories is not taken along, and dates do not matter.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}
.venv/bin/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist .

package=$work/$name
mkdir "$package"
cp elisp/*.el dist/*.whl LICENSE "$package"
# Published as a source alone: whoever installs the server need not build it.
.venv/bin/python -m pip wheel -q --disable-pip-version-check --no-deps -w "$package" \
    "$(sed -n 's/^  "\(epc>.*\)",$/\1/p' pyproject.toml)"
if command -v makeinfo >/dev/null; then
    scripts/manual.sh "$work/manual" >/dev/null
    cp "$work"/manual/{pyagentd.info,dir} "$package"
else
    echo "dist: without the manual, since makeinfo is missing (sudo apt-get install -y texinfo)" >&2
fi
emacs --batch -l scripts/dist.el -f dist-package "$package" dist/elpa
echo "dist: $(ls dist/*.whl)"
echo "dist: dist/$name.tar        M-x package-install-file"
echo "dist: dist/elpa/            (add-to-list 'package-archives '(\"pyagentd\" . \"$PWD/dist/elpa/\"))"
