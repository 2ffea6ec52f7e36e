"""Imports a chat saved by gptel: reads the file, and makes a session of it.

A chat is Markdown or plain text, with gptel's Local Variables (role bounds of either version) or without; or Org with
gptel's properties at its beginning, whose markup becomes Markdown. Text and roles are kept, settings go into
``preset.md``, and notes name what could not be imported. The file itself is only read.
"""

import errno
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pyagentd import regularfile
from pyagentd.errors import BadRequest, NotFound, StoreError
from pyagentd.reader import MOST_TOKENS
from pyagentd.store import paths, presetfile
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import text as document
from pyagentd.store.document.adopt import Adoption, adopt
from pyagentd.store.document.reconcile import recognise
from pyagentd.store.document.text import Document, Settings, find_block
from pyagentd.store.export import foreign
from pyagentd.store.journal import write_rows
from pyagentd.wire.sexp import SexpError, Symbol, read

_N = TypeVar("_N", int, float)

LARGEST = 64 * 1024 * 1024  # bytes

_SYSTEM = re.compile(r"^.*?\b(?:gptel-system-prompt|gptel--system-message):[ \t]*(\S.*)$", re.MULTILINE)
_ORG = re.compile(r"\s*(?:#\+\w+:|:PROPERTIES:\s)")
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_BOM = "\ufeff"
_NOT_OURS = "gptel--preset"  # names a preset of the other Emacs, which would override what is in preset.md


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """The content of a chat file.

    Attributes:
        document: Its text, roles and settings.
        system: The system prompt, or None.
        notes: Problems with it, one line each.
    """

    document: Document
    system: str | None
    notes: tuple[str, ...]


def read_chat(path: Path) -> Chat:
    """Return the chat in the file at ``path``.

    Raises:
        NotFound: There is no such file.
        BadRequest: It is not a chat: a directory, empty, binary, or too large.
        StoreError: The file cannot be read.
    """
    data = _content(path)
    text, notes = _decode(data, path)
    if (other := foreign.read(path, text)) is not None:
        return Chat(document=foreign.document_of(other.pieces), system=None, notes=(*notes, *other.notes))
    if not text.strip():
        raise BadRequest(f"{path} is empty", hint="Name a saved chat")
    if is_org(path, text):
        org, system = read_org(text)
        found = as_markdown(org)
        notes.append("Headings, blocks, code and links of Org are Markdown now; tables and drawers are as they were")
    else:
        found, system = document.parse(text), _read_system_prompt(text, notes)
    notes += found.damage
    if not found.spans:
        where = "gptel--bounds, in Org GPTEL_BOUNDS"
        notes.append(f"The file says nothing of who wrote what ({where}), so all of it counts as yours")
    settings, dropped = _without_foreign_variables(found.settings)
    if dropped:
        notes.append(f"Left out of the Local Variables: {', '.join(dropped)}")
    return Chat(document=replace(found, settings=settings), system=system, notes=tuple(notes))


def preset_text(template: str, name: str, settings: Settings, system: str | None) -> str:
    """Return the text of the preset ``template`` with the settings of a chat; ``name`` is for errors.

    Raises:
        PresetError: The template is malformed.
    """
    preset = presetfile.parse(template, Path(f"{name}.md"))
    entries: Mapping[str, Any] = {
        "backend": settings.backend,
        "model": settings.model,
        "temperature": settings.temperature,
        "max-tokens": settings.max_tokens,
        "tools": None if settings.tools is None else list(settings.tools),
    }
    values = {key: value for key, value in entries.items() if value is not None}
    text = presetfile.with_values(preset, values)
    return text if system is None else presetfile.with_body(presetfile.parse(text, preset.path), system)


def adopt_chat(chat: Chat, *, session_id: str, now_ms: int) -> Adoption:
    """Return the rows for a chat that becomes the session ``session_id``."""
    empty = Conversation()
    return adopt(recognise(chat.document, empty), empty, session_id=session_id, now_ms=now_ms)


def fill(branch_dir: Path, made: Adoption) -> None:
    """Write an adopted chat into a new, empty branch; raises ``StoreError``."""
    write_rows(paths.journal_file(branch_dir), made.facts)
    document.write(paths.session_file(branch_dir), made.document)


def _content(path: Path) -> bytes:
    try:
        return regularfile.read_bytes(path, limit=LARGEST, links=True)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {path}", hint="Name a saved chat") from error
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.EINVAL, errno.ENXIO, errno.EFBIG):
            hint = f"Name the file of a chat, of at most {LARGEST // 1024 // 1024} MB"
            raise BadRequest(f"{path} is not a chat: {error.strerror}", hint=hint) from error
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def _decode(data: bytes, path: Path) -> tuple[str, list[str]]:
    """Return the text of a file as Emacs would read it, and notes on its encoding.

    Raises:
        BadRequest: It is not text.
    """
    if b"\0" in data and b"Local Variables:" not in data:  # a tool may have printed some
        raise BadRequest(f"{path} is not text: it holds zero bytes", hint="Save the chat as UTF-8 and import that")
    try:
        return data.decode("utf-8").removeprefix(_BOM), []
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
    if _MULTIBYTE.search(data):
        note = f"Line {line} is not UTF-8; bytes that are not text were kept as they are"
        return data.decode("utf-8", "surrogateescape").removeprefix(_BOM), [note]
    # In both one byte is one character, so the bounds fit; the first also has quotation marks.
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text, ["The file is not UTF-8; it was read as Latin-1, and the session is UTF-8"]


def is_org(path: Path, text: str) -> bool:
    """Return whether the file at ``path``, with this text, is an Org file."""
    return path.suffix.lower() == ".org" or _ORG.match(text) is not None


# Chats in Org: gptel keeps its settings in properties at the beginning, which positions count, too.

_DRAWER = re.compile(
    r"\A(?:[ \t]*(?:#[^\n]*)?\n|\*+ [^\n]*\n)*?"
    r"(?P<drawer>[ \t]*:PROPERTIES:[ \t]*\n(?P<lines>.*?)^[ \t]*:END:[ \t]*(?:\n|\Z))",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_PROPERTY = re.compile(r"^[ \t]*:(GPTEL_\w+):(.*)$", re.MULTILINE | re.IGNORECASE)
_BEGIN = re.compile(r"[ \t]*#\+begin_(src|example|tool|reasoning)\b[ \t]*(.*)", re.IGNORECASE)
_END = re.compile(r"[ \t]*#\+end_(?:src|example|tool|reasoning)\b[ \t]*", re.IGNORECASE)
_ESCAPED = re.compile(r"^([ \t]*,*),(?=\*|#\+)")  # what Org would read inside a block has a comma before it
_HEADING = re.compile(r"^(\*+)(?= )")
_INLINE = (  # none looks far: a long line may have many signs that nothing ends
    (re.compile(r"\[\[([^][\n]+)\]\[([^][\n]+)\]\]"), r"[\2](\1)"),
    (re.compile(r"(?<![\w=~])([=~])(\S|\S[^\n]{0,400}?\S)\1(?![\w=~])"), r"`\2`"),
    (re.compile(r"(?<![\w*])\*([^\s*]|[^\s*][^*\n]*?[^\s*])\*(?![\w*])"), r"**\1**"),
)


def read_org(text: str) -> tuple[Document, str | None]:
    """Return the chat in the text of an Org file, without the properties, and its system prompt."""
    text = text.replace("\r\n", "\n")
    drawer = _DRAWER.match(text)
    if drawer is None:
        return Document(body=text), None
    properties = {name.upper(): value.strip(" \t") for name, value in _PROPERTY.findall(drawer["lines"])}
    spans, stale = document.read_bounds(properties.get("GPTEL_BOUNDS", ""), len(text))
    start, end = drawer.span("drawer")

    def shift(position: int) -> int:
        return position if position <= start else max(start, position - (end - start))

    kept = (span._replace(start=shift(span.start), end=shift(span.end)) for span in spans)
    settings = Settings(
        model=properties.get("GPTEL_MODEL"),
        backend=properties.get("GPTEL_BACKEND"),
        tools=tuple(properties["GPTEL_TOOLS"].split()) if "GPTEL_TOOLS" in properties else None,
        temperature=_number(properties.get("GPTEL_TEMPERATURE"), float),
        max_tokens=_number(properties.get("GPTEL_MAX_TOKENS"), _tokens),
    )
    system = properties.get("GPTEL_SYSTEM")
    damage = ("Some of its gptel bounds fit no text",) if stale else ()
    return (
        Document(
            body=text[:start] + text[end:],
            spans=document.merge_spans(kept),
            settings=settings,
            stale=stale,
            damage=damage,
        ),
        None if system is None else system.replace("\\n", "\n"),
    )


def as_markdown(org: Document) -> Document:
    """Return an Org document with Markdown's markup; each piece of text keeps its role."""
    cuts = sorted({0, len(org.body), *(edge for span in org.spans for edge in (span.start, span.end))})
    places, pieces, length, in_block = {0: 0}, [], 0, False
    for start, end in itertools.pairwise(cuts):
        piece, in_block = _to_markdown(org.body[start:end], in_block)
        pieces.append(piece)
        length += len(piece)
        places[end] = length
    spans = (span._replace(start=places[span.start], end=places[span.end]) for span in org.spans)
    return replace(org, body="".join(pieces), spans=document.merge_spans(spans))


def _to_markdown(text: str, in_block: bool) -> tuple[str, bool]:
    """Return a piece of Org as Markdown, and whether a block is open at its end."""
    lines = []
    for line in text.split("\n"):
        if in_block:
            in_block = _END.fullmatch(line) is None
            lines.append(_ESCAPED.sub(r"\1", line) if in_block else "```")
        elif begin := _BEGIN.fullmatch(line):
            in_block = True
            kind, rest = begin[1].lower(), begin[2]
            word = rest.split(" ")[0] if kind == "src" else "" if kind == "example" else f" {kind} {rest}".rstrip()
            lines.append(f"```{word}")
        else:
            line = _HEADING.sub(lambda stars: "#" * len(stars[1]), line)
            for pattern, markdown in _INLINE:
                line = pattern.sub(markdown, line)
            lines.append(line)
    return "\n".join(lines), in_block


def _number(text: str | None, kind: Callable[[str], _N]) -> _N | None:
    try:
        return None if text is None else kind(text)
    except ValueError:
        return None


def _tokens(text: str) -> int:
    if not 1 <= (number := int(text)) <= MOST_TOKENS:
        raise ValueError(text)
    return number


def _without_foreign_variables(settings: Settings) -> tuple[Settings, list[str]]:
    """Return ``settings`` with gptel's variables only; about others Emacs would ask, or it would obey them."""
    kept = tuple((name, raw) for name, raw in settings.other if name.startswith("gptel") and name != _NOT_OURS)
    dropped = [name for name, _ in settings.other if name not in {name for name, _ in kept}]
    return replace(settings, other=kept), dropped


def _read_system_prompt(text: str, notes: list[str]) -> str | None:
    """Return the system prompt in the Local Variables."""
    block = find_block(text)
    printed = _SYSTEM.findall(text, block.start) if block is not None else []
    if not printed:
        return None
    try:
        datum, _ = read(printed[-1])
    except SexpError:
        datum = ()
    if isinstance(datum, list) and datum and _is_text(datum[0]):
        notes.append("Of the system prompt only the first text was taken over, not the example messages behind it")
        datum = datum[0]
    if _is_text(datum):
        return str(datum)
    if datum is not None:
        notes.append("The system prompt of the chat is not text; the preset's is used")
    return None


def _is_text(datum: object) -> bool:
    return isinstance(datum, str) and not isinstance(datum, Symbol)
