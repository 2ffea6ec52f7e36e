"""Packaging, with Python alone: wheel and sdist of the server, and the Emacs package that has the wheel.

``python3 scripts/dist.py [DIRECTORY]`` (``make dist``) writes ``dist/``. pip and uv use the same code when they
install a checkout: ``pyproject.toml`` names this file as its build backend. So building needs neither the network nor
packages that a stock system does not have. Emacs writes the description of its package.

The same files give the same bytes; ``SOURCE_DATE_EPOCH``, or else the latest commit, says when they were made.
"""

import base64
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# What goes into the wheel, and as what.
SOURCES = {
    "pyagentd": "pyagentd",
    "presets": "pyagentd/presets",
    "skills": "pyagentd/skills",
    "template": "pyagentd/template",
}


def project() -> dict[str, Any]:
    """Return the table ``project`` of ``pyproject.toml``, with the version."""
    found = re.search(r'^__version__ = "(.+)"', (ROOT / "pyagentd/__init__.py").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {**table, "version": found[1]}


def date() -> int:
    """Return when this was made, in seconds since 1970: not before 1980, which a wheel cannot say."""
    said = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not said and shutil.which("git"):
        latest = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        said = subprocess.run(latest, capture_output=True, text=True, check=False).stdout
    return max(int(said.strip() or 0), 315532800)


# -- The wheel, as PEP 427 and PEP 517 describe it ----------------------------------------------------------------


def metadata(about: Mapping[str, Any]) -> str:
    """Return what ``METADATA`` says: the core metadata, and the README as the description."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {about['name']}",
        f"Version: {about['version']}",
        f"Summary: {about['description']}",
        *(f"Author: {author['name']}" for author in about["authors"]),
        f"Keywords: {','.join(about['keywords'])}",
        f"License-Expression: {about['license']}",
        "License-File: LICENSE",
        *(f"Project-URL: {name}, {url}" for name, url in about.get("urls", {}).items()),
        *(f"Classifier: {each}" for each in about["classifiers"]),
        f"Requires-Python: {about['requires-python']}",
        *(f"Requires-Dist: {each}" for each in about["dependencies"]),
    ]
    for extra, requirements in about["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {each}; extra == "{extra}"' for each in requirements]
    readme = (ROOT / about["readme"]).read_text("utf-8")
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", readme])


def sources() -> Iterator[tuple[str, bytes]]:
    """Yield each file of the server: its name in the wheel, and its content."""
    for place, name in SOURCES.items():
        for path in sorted((ROOT / place).rglob("*")):
            if _is_source(path):
                yield f"{name}/{path.relative_to(ROOT / place).as_posix()}", path.read_bytes()


def write_wheel(directory: str, files: Iterator[tuple[str, bytes]]) -> str:
    """Write the wheel that has ``files`` into ``directory``, and return its name."""
    about = project()
    full = f"{about['name']}-{about['version']}"
    info = f"{full}.dist-info"
    scripts = "\n".join(f"{name} = {what}" for name, what in about["scripts"].items())
    described = {
        "METADATA": metadata(about),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: pyagentd\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[console_scripts]\n{scripts}\n",
        "licenses/LICENSE": (ROOT / "LICENSE").read_text("utf-8"),
    }
    everything = [*files, *((f"{info}/{name}", text.encode()) for name, text in described.items())]
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in everything)
    everything.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode()))
    name = f"{full}-py3-none-any.whl"
    when = time.gmtime(date())[:6]
    with zipfile.ZipFile(Path(directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in everything:
            entry = zipfile.ZipInfo(path, when)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
    return name


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Write the wheel of the server into ``wheel_directory``, and return its name (PEP 517)."""
    return write_wheel(wheel_directory, sources())


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Write the sdist of the server, from which the same wheel is built, and return its name (PEP 517)."""
    about = project()
    full = f"{about['name']}-{about['version']}"
    kept = [path for name in (*SOURCES, "scripts") for path in sorted((ROOT / name).rglob("*"))]
    kept += [ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")]
    files = [(path.relative_to(ROOT).as_posix(), path.read_bytes()) for path in kept if _is_source(path)]
    target = Path(sdist_directory, f"{full}.tar.gz")
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=date()) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, content in [("PKG-INFO", metadata(about).encode()), *files]:
            entry = tarfile.TarInfo(f"{full}/{name}")
            entry.size, entry.mtime = len(content), date()
            tar.addfile(entry, io.BytesIO(content))
    return target.name


def _is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Write a wheel that only says where this checkout is, and return its name (PEP 660)."""
    return write_wheel(wheel_directory, iter([("__editable__.pyagentd.pth", f"{ROOT}\n".encode())]))


# -- The Emacs package, and all of dist/ --------------------------------------------------------------------------


def emacs_package(package: Path, target: Path) -> None:
    """Write ``target``, the tar file of the files in ``package``; Emacs adds its description to them."""
    describe = ["emacs", "--batch", "-l", str(ROOT / "scripts/dist.el"), "-f", "dist-describe", str(package)]
    subprocess.run(describe, check=True, stdout=sys.stderr)
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(package.iterdir()):
            content = path.read_bytes()
            entry = tarfile.TarInfo(f"{package.name}/{path.name}")
            entry.size, entry.mtime = len(content), date()
            tar.addfile(entry, io.BytesIO(content))


def main(target: Path) -> None:
    """Make ``target`` anew: the wheel, and the Emacs package with the wheel and, where it can be made, the manual."""
    version = project()["version"]
    full = f"pyagentd-{version}"
    if f"\n;; Version: {version}\n" not in (ROOT / "elisp/pyagentd.el").read_text("utf-8"):
        sys.exit(f"dist: elisp/pyagentd.el is not version {version}, as pyagentd/__init__.py is")
    if not shutil.which("emacs"):
        sys.exit("dist: emacs is missing; install it and run this again")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    wheel = target / build_wheel(str(target))
    build_sdist(str(target))
    with tempfile.TemporaryDirectory() as work:
        package = Path(work, full)
        package.mkdir()
        for path in (*ROOT.glob("elisp/*.el"), wheel, ROOT / "LICENSE"):
            shutil.copy(path, package)
        manual = Path(work, "manual")
        python = ROOT / ".venv/bin/python"
        if python.exists():
            # Without makeinfo it says that it makes no page for browsers; the package has none.
            make = [python, ROOT / "scripts/manual.py", manual]
            subprocess.run(make, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            for name in ("pyagentd.info", "dir"):
                shutil.copy(manual / name, package)
        else:
            print("dist: without the Info manual, which needs what `make setup` installs", file=sys.stderr)
        emacs_package(package, target / f"{full}.tar")
    print(f"For Emacs:      M-x package-install-file RET {target / full}.tar RET, then M-x pyagentd-session")
    print(f"Without Emacs:  uv tool install '{wheel}[daemon]', or pipx install '{wheel}[daemon]'")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").absolute())
