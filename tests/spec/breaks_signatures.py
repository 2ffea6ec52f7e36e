"""For sections of specification 004 on signatures and templates one way each to break the code; see ``breaks``."""

from __future__ import annotations

from functools import partial

from tests.spec.breaking import Break

_SIGNATURE = "pyagentd/mission/signature"
_TEMPLATE = "pyagentd/mission/template.py"

_of = partial(Break, spec="004")

BREAKS_OF_SIGNATURES = [
    _of(
        "Signature Type Syntax",
        f"{_SIGNATURE}/parsing.py",
        'return fields_of(parens.value, "parameter"), _result(arrow, rest)',
        "return (), _result(arrow, rest)",
    ),
    _of(
        "Shorthand Syntax",
        f"{_SIGNATURE}/parsing.py",
        "return maybe(meaning) if has_mark(form) else meaning",
        "return meaning",
    ),
    _of(
        "Malli Data (Advanced)",
        f"{_SIGNATURE}/parsing.py",
        "            return choice(map(type_of, _children(form)))\n",
        "            return And(tuple(map(type_of, _children(form))))\n",
    ),
    _of(
        "PtcRunner.SubAgent.Signature",
        f"{_SIGNATURE}/__init__.py",
        "return Signature((), self.returns, self.python)",
        "return self",
    ),
    _of(
        "DD-1: Optional Field Syntax (`?` suffix)",
        f"{_SIGNATURE}/parsing.py",
        "return Field(name, type_of(form), optional=has_mark(form))",
        "return Field(name, type_of(form))",
    ),
    _of(
        "DD-3: Lenient Extra Fields by Default",
        f"{_SIGNATURE}/validation.py",
        "closed = self.strict or of.closed",
        "closed = True",
    ),
    _of(
        "DD-8: Malli-based Schema System",
        f"{_SIGNATURE}/rendering.py",
        "case Maybe(inner) if not field.optional:",
        "case Maybe(inner):",
    ),
    _of(
        "Signature Validation Strictness",
        f"{_SIGNATURE}/validation.py",
        "for key in others if closed else ():",
        "for key in others if of.closed else ():",
    ),
    _of(
        "Implicit Conversion",
        f"{_SIGNATURE}/validation.py",
        "made = _convert(name, value)",
        "made = _FAILED",
    ),
    _of(
        "Tool Normalization & Schema Extraction",
        f"{_SIGNATURE}/hints.py",
        "return Field(name, of) if required else Field(name, maybe(of), optional=True)",
        "return Field(name, of)",
    ),
    _of("Template Syntax", _TEMPLATE, "for item in value:", "for item in value[:1]:"),
    _of("Prompt Placeholder Validation", _TEMPLATE, "self.missing[dotted_name(node.name)] = None", "return"),
    _of(
        "Nested Data & Expansion",
        _TEMPLATE,
        "            for segment in name[1:]:\n                known, found",
        "            for segment in name[2:]:\n                known, found",
    ),
    _of(
        "Schema Generation",
        _TEMPLATE,
        "dotted_name(name) for name in names if name))",
        "dotted(name[1:]) for name in names))",
    ),
]
