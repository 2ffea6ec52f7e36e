"""Finding the program in a model's answer.

Of the language only strings, comments and brackets are recognised. Besides the format that the system prompt asks
for, common deviations are accepted: other tags or none, CRLF, typographic quotes, a fence that is not closed, a fence
inside a string, prose after a bare expression.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TAGS = frozenset({"clojure", "clj", "cljs", "lisp", "ptc-lisp", "ptclisp", "ptc_lisp", "ptc"})
_OPEN = re.compile(r"^[ \t>]*(?P<fence>`{3,}|~{3,})[ \t]*\{?\.?(?P<tag>[\w+-]*)\}?(?P<rest>[^\n`]*)", re.MULTILINE)
_BEHIND = re.compile(r"(?<=\S)[ \t]+(?=(?:`{3,}|~{3,})(?:clojure|clj|cljs|lisp|ptc\S*)[ \t]*\n)", re.IGNORECASE)
_THOUGHT = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_INVISIBLE = {"\u00a0": " ", **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", "")}
_QUOTES = "“”„‟"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The parts of an answer."""

    program: str | None
    reasoning: str = ""  # the text around the program
    blocks: int = 0  # the number of code blocks that make up the program; 0 for a bare expression


def parse(text: str) -> Response:
    """Return the parts of an answer."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    thought = _THOUGHT.match(text)
    rest = text[thought.end() :] if thought else text
    before = thought.group() if thought else ""
    blocks, around = _blocks(rest)
    if blocks:
        programs = [plain(block) for block in blocks]
        program = programs[0] if len(programs) == 1 else "(do\n{}\n)".format("\n".join(programs))
        return Response(program=program, reasoning=(before + around).strip(), blocks=len(blocks))
    bare = plain(rest)
    if _without_comments(bare).startswith("(") and bare.startswith(("(", ";")):
        end = _end_of_forms(bare)
        return Response(program=bare[:end].strip(), reasoning=(before + bare[end:]).strip())
    if (moved := _BEHIND.sub("\n", text)) != text:  # a fence behind text on its line
        return parse(moved)
    return Response(program=None, reasoning=text.strip())


def plain(code: str) -> str:
    """Return ``code`` with typographic quotes and unusual spaces outside strings replaced by ASCII."""
    odd = any(char in code for char in (*_QUOTES, *_INVISIBLE))
    return ("".join(_plain(code)) if odd else code).strip()


def _blocks(text: str) -> tuple[list[str], str]:
    """Return the bodies of the blocks that are programs, and the text without them.

    Where there are tagged blocks, an untagged one is taken for an example or output.
    """
    found: list[tuple[bool, int, int, str]] = []
    at = 0
    while opening := _OPEN.search(text, at):
        body, end = _body(text, opening)
        tag = opening["tag"].lower()
        code = _without_comments(body)
        if code and (tag in _TAGS or (not tag and code.startswith("("))):
            found.append((bool(tag), opening.start(), end, body))
        at = max(end, opening.end())
    tagged = [block for block in found if block[0]] or found
    around, last = "", 0
    for _, start, end, _ in tagged:
        around, last = around + text[last:start], end
    return [body for *_, body in tagged], around + text[last:]


def _body(text: str, opening: re.Match[str]) -> tuple[str, int]:
    """Return the text inside a fence, and where its closing fence ends."""
    fence = opening["fence"]
    start, _ = opening.span("rest")
    closing = re.compile(re.escape(fence) + rf"{re.escape(fence[0])}*[ \t]*(?=\n|\Z)|(?<=[)\]}}]){re.escape(fence)}")
    first = end = closing.search(text, start)
    at = start
    while end and (token := _TOKEN.search(text, at, end.start())):
        at = token.end()
        if token["string"] and at == end.start() and (whole := _TOKEN.match(text, token.start())):
            at = whole.end()  # the string may go on behind the fence
            if at > end.start():
                end = closing.search(text, at)
    # A fence inside a string is part of the string, unless the string is not closed.
    end = end or first
    return (text[start : end.start()], end.end()) if end else (text[start:], len(text))


def _end_of_forms(text: str) -> int:
    """Return where the expressions at the start of ``text`` end; its length if one is not closed."""
    depth = 0
    for token in _TOKEN.finditer(text):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
            if depth == 0 and not _FOLLOWS.match(text, token.end()):
                return token.end()
    return len(text)


_FOLLOWS = re.compile(r"(?:[ \t\n,]|;[^\n]*\n)*+\(")
_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*(?:"|\Z))|(?P<comment>;[^\n]*)|(?P<open>[(\[{])|(?P<close>[)\]}])', re.DOTALL
)


def _without_comments(code: str) -> str:
    lines = plain(code).split("\n")
    return "\n".join(line for line in lines if not line.lstrip().startswith(";")).strip()


def _plain(code: str) -> Iterator[str]:
    """Yield the code; typographic quotes that begin or end a string become ASCII, others are left."""
    ends = ""
    escaped = comment = False
    for char in code:
        if escaped:
            escaped = False
        elif comment:
            comment = char != "\n"
        elif ends:
            if char == "\\":
                escaped = True
            elif char in ends:
                char, ends = '"', ""
        elif char == ";":
            comment = True
        elif char == '"':
            ends = '"'
        elif char in _QUOTES:
            char, ends = '"', _QUOTES + '"'
        else:
            char = _INVISIBLE.get(char, char)
        yield char
