"""Finds the tests that name a scenario, by reading the sources: ``python -m tests.spec.coverage`` lists them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.spec.breaking import Break
from tests.spec.breaks import BREAKS

DEVIATIONS = "docs/deviations.md"
"""Where the product does on purpose something else than a specification says, with the reason."""

TESTS = Path(__file__).resolve().parents[1]
SPECIFICATIONS = sorted(path.stem for path in Path(__file__).parent.glob("*.txt"))

_Function = ast.FunctionDef | ast.AsyncFunctionDef

_ERT = re.compile(r'^\(ert-deftest ([^ ]+) \(\)\n  "(.*?[^\\])"', re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"SPEC (\d{3}) (.*?)\.(?:\s|\Z)", re.DOTALL)


class Claim(NamedTuple):
    """A test says that it shows a scenario; ``test`` is a pytest node id or the name of an ERT test."""

    spec: str
    scenario: str
    test: str
    file: Path


def scenarios(spec: str) -> list[str]:
    """Return the titles of a specification's scenarios, in its order."""
    return (Path(__file__).parent / f"{spec}.txt").read_text("utf-8").splitlines()


def claims() -> list[Claim]:
    """Return what all tests claim."""
    found: list[Claim] = []
    for file in sorted(TESTS.rglob("test_*.py")):
        found += _python_claims(file)
    for file in sorted((TESTS / "elisp").glob("*-test.el")):
        found += _ert_claims(file)
    return found


def _python_claims(file: Path) -> Iterator[Claim]:
    tree = ast.parse(file.read_text("utf-8"))
    named = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for name, test in _tests(tree):
        for decorator in test.decorator_list:
            match named.get(decorator.id) if isinstance(decorator, ast.Name) else decorator:
                case ast.Call(func=ast.Attribute(attr="spec"), args=[ast.Constant(value=spec), title]):
                    said = title if isinstance(title, ast.Constant) else named[ast.unparse(title)]
                    yield Claim(
                        str(spec), str(ast.literal_eval(said)), f"{file.relative_to(TESTS.parent)}::{name}", file
                    )


def _tests(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, _Function]]:
    """Yield functions and methods with their names as pytest writes them."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node


def _ert_claims(file: Path) -> Iterator[Claim]:
    for test, docstring in _ERT.findall(file.read_text("utf-8")):
        for spec, titles in _NAMED.findall(" ".join(docstring.split()) + " "):
            for title in _split(spec, titles):
                yield Claim(spec, title, test, file)


def _split(spec: str, titles: str) -> list[str]:
    """Return the titles in a list of some; one may itself have a comma in it."""
    known = scenarios(spec) if spec in SPECIFICATIONS else []
    return [titles] if titles in known else titles.split(", ")


def uncalled() -> list[str]:
    """Return the scenarios that are fulfilled by a function which nothing in the product calls.

    A ``jf/`` function is there for its user to call, and an operation has its name in kebab-case in what calls it.
    """
    product = {path: path.read_text("utf-8") for path in (*_sources("pyagentd", "*.py"), *_sources("elisp", "*.el"))}
    words = Counter(word for text in product.values() for word in re.findall(r"[\w/-]+", text))
    found = []
    for each in BREAKS:
        name = _fulfilled_by(each, product[TESTS.parent / each.file])
        if name is None or name.startswith(("__", "jf/")):
            continue
        if sum(words[spelled] for spelled in {name, name.replace("_", "-")}) < 2:
            found.append(f"{each.spec}  {each.scenario}: nothing calls {name} of {each.file}")
    return found


def _sources(directory: str, pattern: str) -> Iterator[Path]:
    return (TESTS.parent / directory).rglob(pattern)


def _fulfilled_by(broken: Break, text: str) -> str | None:
    """Return the name of the innermost function, or Lisp definition, that a break of a scenario breaks."""
    at = text.index(broken.old)
    if broken.file.endswith(".el"):
        definitions = [
            each for each in re.finditer(r"^\(def\S+ '?([^\s()]+)", text, re.MULTILINE) if each.start() <= at
        ]
        return definitions[-1][1] if definitions else None
    line = text.count("\n", 0, at + len(broken.old) - len(broken.old.lstrip())) + 1
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, _Function) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno).name if around else None


def main() -> None:
    """Print every scenario with its tests."""
    print(f"What differs from the specifications on purpose, and why: {DEVIATIONS}\n")
    for each in uncalled():
        print(f"not covered: {each}")
    said = claims()
    for spec in SPECIFICATIONS:
        for title in scenarios(spec):
            tests = [claim.test for claim in said if (claim.spec, claim.scenario) == (spec, title)]
            print(f"{spec}  {title}\n" + "\n".join(f"       {test}" for test in tests or ["(no test)"]))


if __name__ == "__main__":
    main()
