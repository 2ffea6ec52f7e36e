"""Compare the mission language, signatures and templates with cases of the reference implementation.

``python -m tests.spec.reference DIRECTORY`` prints how many of ``ptc-cases.jsonl``, ``signature-cases.jsonl`` and
``template-cases.jsonl`` agree, and each case that does not; it fails below ``BARS``. The cases are not part of this
repository. In their JSON ``"~:k"`` is a keyword, ``"~~x"`` a string that begins with a tilde, ``{"~#set": […]}`` a
set, ``{"~#cmap": [k, v, …]}`` a map with other keys than strings; 5 and 5.0 differ.
"""

import argparse
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyagentd import lisp
from pyagentd.errors import SignatureError, TemplateError
from pyagentd.lisp import serialization
from pyagentd.lisp.values import Keyword, LispSet, as_key, equal
from pyagentd.mission import signature, template
from pyagentd.mission.signature import Map

BARS = {"ptc": 880, "signature": 241, "template": 33}
"""How many cases agree at least; docs/lisp.md and docs/signatures.md name the deliberate differences."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spec.reference", description=__doc__)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    below = False
    for name, disagreement in (("ptc", of_program), ("signature", of_signature), ("template", of_template)):
        cases = [json.loads(line) for line in (directory / f"{name}-cases.jsonl").read_text().splitlines()]
        wrong = [(case, why) for case in cases if (why := disagreement(case)) is not None]
        agreeing = len(cases) - len(wrong)
        below = below or agreeing < BARS[name]
        print(f"{name}: {agreeing} of {len(cases)} agree, {BARS[name]} are required")
        for case, why in wrong:
            print(f"  {case['id']}  {(case.get('program') or case.get('signature') or '').strip()}\n    {why}")
    return 1 if below else 0


def of_program(case: Mapping[str, Any]) -> str | None:
    """Return how a program's outcome differs from that of the reference; None if it does not."""
    expected = (
        "one of " + ", ".join(case["error_any"])
        if "error" in case
        else serialization.readable(decoded(case["expect"]))
    )
    try:
        result = lisp.run(
            case["program"],
            decoded(case.get("ctx", {})),
            memory={_name(key): value for key, value in decoded(case.get("memory", {})).items()},
            tools=_tools(case.get("tools", {})),
        )
    except lisp.LispError as error:
        same = error.reason in case.get("error_any", ())
        return None if same else f"expected {expected}, got {error.reason}: {error.message}"
    found = serialization.readable(result.value)
    return None if "error" not in case and found == expected else f"expected {expected}, got {found}"


def of_signature(case: Mapping[str, Any]) -> str | None:
    """Return how parsing, rendering or validation of a signature differs."""
    try:
        parsed = signature.parse(case["signature"])
    except SignatureError as error:
        return None if not case.get("parse_ok", True) else f"it does not parse: {error}"
    if case.get("parse_ok") is False:
        return None if "disputed" in case else "it parses"  # the specification writes what the reference refuses
    if "render" in case and signature.parse(case["render"]) != parsed:
        return f"{parsed.render()} is not {case['render']}"
    if "value" not in case:
        return None
    value = decoded(case["value"])
    problems = parsed.validate(value) if case["kind"] == "output" else parsed.validate_input(value)
    if bool(problems) == case["valid"]:
        return f"expected {'valid' if case['valid'] else case['errors']}, got {[str(each) for each in problems]}"
    params = Map(parsed.params) if case["kind"] == "input" else parsed.returns
    coerced = signature.coerce(params, value)
    if bool(coerced.problems) == case["coerce_ok"]:
        return f"coercion: expected {case.get('coerced', case.get('coerce_error'))}, got {coerced}"
    if case["coerce_ok"] and not equal(coerced.value, decoded(case["coerced"])):
        return f"coercion: expected {case['coerced']}, got {coerced.value}"
    return None


def of_template(case: Mapping[str, Any]) -> str | None:
    """Return how the expansion of a template differs."""
    try:
        found = template.expand(case["template"], decoded(case["ctx"]), lambda path, value: serialization.text(value))
    except TemplateError as error:
        told = [name for name in case.get("missing", ()) if not re.search(rf"\b{re.escape(name)}\b", str(error))]
        return None if "error" in case and not told else f"{error}; not named: {told}"
    return None if found == case.get("expect") else f"expected {case.get('expect')!r}, got {found!r}"


def decoded(data: Any) -> Any:
    """Return a value of the language from the JSON of the cases."""
    match data:
        case str() if data.startswith("~:"):
            return Keyword(data[2:])
        case str() if data.startswith("~~"):
            return data[1:]
        case list():
            return [decoded(item) for item in data]
        case {"~#set": items}:
            return LispSet.of(map(decoded, items))
        case {"~#cmap": flat}:
            return {as_key(decoded(key)): decoded(value) for key, value in zip(flat[::2], flat[1::2], strict=True)}
        case dict():
            return {decoded(key): decoded(value) for key, value in data.items()}
    return data


def _tools(given: Mapping[str, Any]) -> Callable[[str, Any], Any]:
    def call(name: str, args: Any) -> Any:
        tool = given.get(name)
        if tool is None:
            raise lisp.LispError("tool_not_found", f"There is no tool {name}")
        return args if tool.get("echo") else decoded(tool["const"])

    return call


def _name(key: Any) -> str:
    return key.name if isinstance(key, Keyword) else key


if __name__ == "__main__":
    raise SystemExit(main())
