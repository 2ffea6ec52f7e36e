"""Finds the tests that name a scenario, by reading the sources: ``python -m tests.spec.coverage`` lists them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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


def main() -> None:
    """Print every scenario with its tests."""
    said = claims()
    for spec in SPECIFICATIONS:
        for title in scenarios(spec):
            tests = [claim.test for claim in said if (claim.spec, claim.scenario) == (spec, title)]
            print(f"{spec}  {title}\n" + "\n".join(f"       {test}" for test in tests or ["(no test)"]))


if __name__ == "__main__":
    main()
