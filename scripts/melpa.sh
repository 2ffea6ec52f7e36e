#!/usr/bin/env bash
# Build the Emacs package of the latest commit as MELPA does, with its package-build: without the wheel, so that Emacs offers
# to install the server from Python's index, and with the Info manual. PACKAGE_BUILD says where package-build's checkout is.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'melpa: %s\n' "$*" >&2; exit 1; }
[ -f "${PACKAGE_BUILD:-}/package-build.el" ] || die "say where package-build is: make melpa PACKAGE_BUILD=DIRECTORY"
command -v makeinfo >/dev/null || die "missing; run: sudo apt-get install -y texinfo"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{recipes,packages,working}
git clone -q . "$work/pyagentd" # its branch is the one that is looked at
sed "s|URL|file://$work/pyagentd|" scripts/melpa-recipe >"$work/recipes/pyagentd"
emacs -Q --batch -L "$PACKAGE_BUILD" -l package-build --eval "(setq package-build-working-dir \"$work/working/\"
    package-build-archive-dir \"$work/packages/\" package-build-recipes-dir \"$work/recipes/\"
    package-build-run-recipe-org-exports t package-build-verbose nil)" \
    --eval '(package-build-archive "pyagentd")' >"$work/log" 2>&1 || { cat "$work/log"; die "package-build failed"; }
[ ! -s "$work/packages/errors.log" ] || die "$(cat "$work/packages/errors.log")"
package=$(echo "$work"/packages/pyagentd-*.tar)
[ -f "$package" ] || { tail -n 20 "$work/log"; die "package-build made nothing"; }
files=$(tar -tf "$package")
grep -q '/pyagentd.info$' <<<"$files" || die "the package has no Info manual"
! grep -q '\.whl$' <<<"$files" || die "the package has the wheel in it"
# An Emacs of a new user installs it, finds the manual, and asks the index for the server.
HOME=$work emacs -Q --batch --eval "(progn (require 'package) (setq package-archives nil) (package-initialize)
    (package-install-file \"$package\") (require 'pyagentd) (require 'pyagentd-install) (require 'info) (info-initialize)
    (princ (format \"installed; the server: %s; the manual: %s\n\" (pyagentd-install-requirement)
                   (and (Info-find-file \"pyagentd\" t) t))))" 2>"$work/log" || { cat "$work/log"; die "it cannot be installed"; }
mkdir -p build && cp "$package" build/
printf 'melpa: build/%s, %s files\n' "$(basename "$package")" "$(wc -l <<<"$files")"
