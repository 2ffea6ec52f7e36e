"""Imports a chat saved by gptel or by another program: reads the file, and makes a session of it.

A chat of gptel is Markdown or plain text, with gptel's Local Variables (role bounds of either version) or without; or
Org with gptel's properties at its beginning, whose markup becomes Markdown. Text and roles are kept, settings go into
``preset.md``, and notes name what could not be imported. The file itself is only read.

Of other programs, sessions of Claude Code (JSONL), of opencode (the output of ``opencode export``, or a session's
file in its storage), transcripts of agent-shell (Markdown), and JSON lines of the Agent Client Protocol are read. All
become turns, and these a document with gptel's roles; adopting the document gives messages and tool calls.
"""

import errno
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pyagentd import reader, regularfile
from pyagentd.errors import BadRequest, NotFound, StoreError
from pyagentd.reader import MOST_TOKENS
from pyagentd.store import paths, presetfile
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import render
from pyagentd.store.document import text as document
from pyagentd.store.document.adopt import Adoption, adopt
from pyagentd.store.document.reconcile import recognise
from pyagentd.store.document.text import PROMPT_PREFIX, Document, Settings, Span, find_block, merge_spans
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
    if (other := read_foreign(path, text)) is not None:
        return Chat(document=document_of(other.pieces), system=None, notes=(*notes, *other.notes))
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


# Chats of other programs.

_APART = "\n\n"  # between texts that follow each other


class Piece(NamedTuple):
    """A prompt, text, reasoning or tool call; ``data`` is a tool part in the log's form."""

    kind: Literal["user", "text", "reasoning", "tool"]
    text: str = ""
    data: Mapping[str, Any] = {}


class Foreign(NamedTuple):
    """A conversation of another program: the program, the pieces, and notes on what was left out, one line each."""

    program: str
    pieces: list[Piece]
    notes: tuple[str, ...] = ()


def read_foreign(path: Path, text: str) -> Foreign | None:
    """Return the conversation in the file at ``path``, None if it is not of such a program.

    Raises:
        BadRequest: It is, but has no messages.
    """
    if text.startswith("# Agent Shell Transcript"):
        found = Foreign("agent-shell", list(_transcript(text.replace("\r\n", "\n"))))
    elif path.suffix.lower() == ".json":
        found = _opencode(path, text)
    elif path.suffix.lower() == ".jsonl":
        found = _lines(text)
    else:
        return None
    if not any(piece.kind != "reasoning" for piece in found.pieces):
        raise BadRequest(
            f"{path} holds no conversation of {found.program}",
            hint="Name a session of Claude Code (.jsonl), an export of opencode (.json), or a chat of gptel (.md)",
        )
    return found


def document_of(pieces: Iterable[Piece]) -> Document:
    """Return a session document with ``pieces``."""
    body, spans, last = "", list[Span](), "start"
    for piece in pieces:
        parts: list[tuple[str, str, str]] = []
        match piece.kind:
            case "user":
                parts.append((PROMPT_PREFIX if not body else render.RUN_CLOSE, "", ""))
                parts.append((render.writable(piece.text.strip()), "", ""))
            case "text":
                parts.append((render.writable(piece.text.strip("\n")), "response", ""))
            case "reasoning":
                parts.append((render.reasoning_block(piece.text), "ignore", ""))
            case "tool":
                parts.append((render.tool_head(piece.data), "ignore", ""))
                parts.append((render.tool_body(piece.data), "tool", piece.data["toolCallId"]))
                parts.append((render.FENCE_CLOSE + "\n", "ignore", ""))
        if piece.kind != "user":
            opening = "" if last != "start" or not body else render.RUN_OPEN
            body += opening + render.separator(last, piece.kind)  # type: ignore[arg-type]
        for text, role, call_id in parts:
            if role and text:
                spans.append(Span(len(body), len(body) + len(text), role, call_id))  # type: ignore[arg-type]
            body += text
        last = "start" if piece.kind == "user" else piece.kind
    if last != "start":
        body += render.RUN_CLOSE
    return Document(body=body, spans=merge_spans(spans))


def _tool(name: str, call_id: str, input: object, output: str, *, failed: bool = False) -> Piece:
    data = {
        "type": f"tool-{re.sub(r'[^A-Za-z0-9_.-]', '_', name) or 'tool'}",
        "toolCallId": call_id,
        "state": "output-available",
        "input": dict(input) if isinstance(input, Mapping) else {},
        "output": f"Error: {output}" if failed and not output.startswith("Error") else output,
    }
    return Piece("tool", data=data)


def _text_of(content: object) -> str:
    """Return the text of a content without blank lines around it."""
    return _whole_text(content).strip("\n")


def _whole_text(content: object) -> str:
    """Return the text of a content: a string, or blocks of which some are text."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        content = content.get("content", [content]) if "type" not in content else [content]
    blocks = content if isinstance(content, Sequence) else ()
    return "\n".join(_block(block) for block in blocks if isinstance(block, Mapping))


def _block(block: Mapping[str, Any]) -> str:
    match block:
        case {"text": str(text)}:
            return text
        case {"type": "content", "content": inner}:
            return _text_of(inner)
        case {"type": "diff", "path": path}:
            return f"[changed {path}]"
        case {"type": str(kind)}:
            return f"[{kind}]"
    return ""


# JSON lines: Claude Code's sessions, and the protocol's messages.


def _lines(text: str) -> Foreign:
    rows, broken = list[dict[str, Any]](), 0
    for line in text.split("\n"):  # other separators of lines may stand in a string
        try:
            row = reader.parse(line) if line.strip() else None
        except ValueError:
            broken += 1
            continue
        if isinstance(row, dict):
            rows.append(row)
    notes = (f"{broken} lines are not JSON and were left out",) if broken else ()
    if any("sessionUpdate" in _update_in(row) or row.get("method") == "session/prompt" for row in rows[:50]):
        return Foreign("the Agent Client Protocol", list(_protocol(rows)), notes)
    pieces, left = _claude_code(rows)
    if left:
        notes = (*notes, f"{left} lines of sub-agents and of prompts that were taken back were left out")
    return Foreign("Claude Code", pieces, notes)


def _claude_code(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Piece], int]:
    """Return the pieces, and the number of lines left out because another prompt replaced theirs."""
    messages = [
        row for row in rows if row.get("type") in ("user", "assistant") and isinstance(row.get("message"), dict)
    ]
    replaced = _replaced_ids(rows)
    kept = [row for row in messages if not row.get("isSidechain") and str(row.get("uuid")) not in replaced]
    results = {
        str(block.get("tool_use_id")): block
        for row in kept
        for block in _blocks(row["message"].get("content"))
        if block.get("type") == "tool_result"
    }
    pieces = []
    for row in kept:
        if row.get("isMeta"):
            continue
        role = row["type"]
        for block in _blocks(row["message"].get("content")):
            match block:
                case {"type": "text", "text": str(text)} if text.strip():
                    pieces.append(Piece("user" if role == "user" else "text", text))
                case {"type": "thinking", "thinking": str(text)} if text.strip():
                    pieces.append(Piece("reasoning", text))
                case {"type": "tool_use", "id": str(call_id), "name": str(name), **rest}:
                    result = results.get(call_id, {})
                    output, failed = _text_of(result.get("content", "")), bool(result.get("is_error"))
                    pieces.append(_tool(name, call_id, rest.get("input"), output, failed=failed))
                case {"type": "image" | "document" as kind} if role == "user":
                    pieces.append(Piece("user", f"[{kind}]"))
    return list(_join_neighbours(pieces)), len(messages) - len(kept)


def _replaced_ids(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the ids of prompts that another one with the same parent replaced, and of all that followed them."""
    last: dict[str, str] = {}
    gone: set[str] = set()
    for row in rows:
        parent, id = row.get("parentUuid"), row.get("uuid")
        if not isinstance(parent, str) or not isinstance(id, str) or row.get("isSidechain") or row.get("isMeta"):
            continue
        content = row.get("message", {}).get("content") if isinstance(row.get("message"), dict) else None
        prompt = row.get("type") == "user" and all(each.get("type") != "tool_result" for each in _blocks(content))
        if prompt and parent in last:
            gone.add(last[parent])
        if prompt:
            last[parent] = id
    for row in rows:  # a parent stands before its children
        if str(row.get("parentUuid")) in gone and isinstance(row.get("uuid"), str):
            gone.add(row["uuid"])
    return gone


def _blocks(content: object) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _protocol(rows: Iterable[Mapping[str, Any]]) -> Iterator[Piece]:
    pieces = list[Piece]()
    places: dict[str, int] = {}
    for row in rows:
        params = _params(row)
        if row.get("method") == "session/prompt":
            pieces.append(Piece("user", _APART + _text_of(params.get("prompt"))))
            continue
        match _update_in(row):
            case {"sessionUpdate": "user_message_chunk", "content": content}:
                pieces.append(Piece("user", _whole_text(content)))
            case {"sessionUpdate": "agent_message_chunk", "content": content}:
                pieces.append(Piece("text", _whole_text(content)))
            case {"sessionUpdate": "agent_thought_chunk", "content": content}:
                pieces.append(Piece("reasoning", _whole_text(content)))
            case {"sessionUpdate": "tool_call" | "tool_call_update", "toolCallId": str(call_id), **rest}:
                before = pieces[places[call_id]].data if call_id in places else {}
                name = str(before.get("type", "")).removeprefix("tool-") or _name(rest)
                input = rest.get("rawInput") or before.get("input")
                output = _output(rest) or str(before.get("output", ""))
                made = _tool(name, call_id, input, output, failed=rest.get("status") == "failed")
                if call_id in places:
                    pieces[places[call_id]] = made
                else:
                    places[call_id] = len(pieces)
                    pieces.append(made)
    yield from _join_neighbours(pieces, chunks=True)


def _params(row: Mapping[str, Any]) -> Mapping[str, Any]:
    params = row.get("params")
    return params if isinstance(params, Mapping) else row


def _update_in(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the update in a notification; some programs store it without the envelope."""
    update = _params(row).get("update", _params(row))
    return update if isinstance(update, Mapping) else {}


def _name(call: Mapping[str, Any]) -> str:
    title = str(call.get("title") or call.get("kind") or "tool")
    return title.split()[0] if title.split() else "tool"


def _output(call: Mapping[str, Any]) -> str:
    raw = call.get("rawOutput")
    if isinstance(raw, str):
        return raw
    return _text_of(call.get("content")) or (json.dumps(raw, ensure_ascii=False) if raw else "")


def _join_neighbours(pieces: Iterable[Piece], *, chunks: bool = False) -> Iterator[Piece]:
    """Yield ``pieces`` with neighbours of one kind joined, as chunks of a text or as paragraphs."""
    for kind, group in groupby(pieces, key=lambda piece: piece.kind):
        if kind == "tool":
            yield from group
        elif text := ("" if chunks else _APART).join(piece.text for piece in group).strip("\n"):
            yield Piece(kind, text)


# opencode: a session is a JSON object with messages, or files of its storage.


def _opencode(path: Path, text: str) -> Foreign:
    try:
        record = reader.parse(text)
    except ValueError as error:
        raise BadRequest(f"{path} is not JSON: {error}", hint="Name what `opencode export` wrote") from error
    messages = record.get("messages") if isinstance(record, dict) else None
    if messages is None and isinstance(record, dict) and isinstance(record.get("id"), str):
        messages = list(_stored_messages(path))
    pieces = []
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, Mapping):
            continue
        info, parts = message.get("info"), message.get("parts")
        is_user = isinstance(info, Mapping) and info.get("role") == "user"
        for part in parts if isinstance(parts, list) else ():
            match part:
                case {"type": "text", "text": str(words)} if words.strip() and not part.get("synthetic"):
                    pieces.append(Piece("user" if is_user else "text", words))
                case {"type": "reasoning", "text": str(words)} if words.strip():
                    pieces.append(Piece("reasoning", words))
                case {"type": "tool", "callID": str(call_id), "tool": str(name), "state": {**state}}:
                    failed = state.get("status") == "error"
                    output = str(state.get("error" if failed else "output") or "")
                    pieces.append(_tool(name, call_id, state.get("input"), output, failed=failed))
    return Foreign("opencode", list(_join_neighbours(pieces)))


def _stored_messages(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the messages of the session with the file ``path`` in opencode's storage; ids sort by time."""
    storage = path.resolve().parent.parent.parent
    for file in sorted((storage / "message" / path.stem).glob("*.json")):
        parts = sorted((storage / "part" / file.stem).glob("*.json"))
        try:
            yield {"info": _json_in(file), "parts": [_json_in(part) for part in parts]}
        except (OSError, ValueError) as error:
            raise BadRequest(f"{file} or a part of it cannot be read: {error}") from error


def _json_in(file: Path) -> Any:
    return reader.parse(regularfile.read_bytes(file, limit=regularfile.DOCUMENT, links=True))


# agent-shell: headings with a time, and fences as long as what they hold needs.

_HEAD = re.compile(
    r"^(?:## (?P<who>User|Agent's Thoughts|Agent) \(\d{4}-[^)\n]*\)"
    r"|### Tool Call \[(?P<status>[^]\n]*)\]: ?(?P<title>.*))$",
    re.MULTILINE,
)
_FENCED = re.compile(r"^(?P<fence>`{3,})\n(?P<output>.*?)\n?^(?P=fence)$\n?", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^\*\*(Tool|Command|Description):\*\* (.*)$", re.MULTILINE)


def _transcript(text: str) -> Iterator[Piece]:
    heads = [*_HEAD.finditer(text)]
    for number, head in enumerate(heads):
        content = text[head.end() : heads[number + 1].start() if number + 1 < len(heads) else len(text)]
        if head["who"]:
            kind: Literal["user", "text", "reasoning"] = "user" if head["who"] == "User" else "text"
            kind = "reasoning" if head["who"] == "Agent's Thoughts" else kind
            if content.strip():
                yield Piece(kind, content.strip("\n"))
            continue
        fenced = _FENCED.search(content)
        fields = {
            name.lower(): value for name, value in _FIELD.findall(content[: fenced.start() if fenced else None])
        }
        name = fields.pop("tool", "tool")
        output = fenced["output"] if fenced else ""
        input = {"title": head["title"], **fields}
        yield _tool(name, f"call-{number}", input, output, failed=head["status"] == "failed")
        if fenced and (rest := content[fenced.end() :].strip("\n")):
            yield Piece("text", rest)
