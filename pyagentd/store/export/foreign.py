"""Reads conversations of other programs, and writes the lines of the Agent Client Protocol.

It reads sessions of Claude Code (JSONL), of opencode (the output of ``opencode export``, or a session's file in its
storage), transcripts of agent-shell (Markdown), and JSON lines of the Agent Client Protocol. All become turns, and
these a document with gptel's roles; adopting the document gives messages and tool calls. Pure except for opencode's
storage, which is many files.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pyagentd import reader, regularfile
from pyagentd.errors import BadRequest
from pyagentd.store.document import render
from pyagentd.store.document.text import PROMPT_PREFIX, Document, Span, merge_spans
from pyagentd.wire.sexp import SexpError, read_call

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


def read(path: Path, text: str) -> Foreign | None:
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


# Writing: one notification of the protocol a line.

_KINDS = (("read", "read"), ("edit|write", "edit"), ("glob|grep|search", "search"), ("bash|shell|task", "execute"))


def protocol_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield a canonical record as the ``session/update`` notifications that an agent would have sent.

    Messages that the user removed or rewound are left out.

    Args:
        record: As ``export.canonical`` returns it.
    """
    session_id, last = record["session"]["id"], ""
    for item in record["messages"]:
        user = item["message"]["role"] == "user"
        metadata = item["message"].get("metadata_json") or {}
        if metadata.get("hidden") or metadata.get("hidden_at"):
            continue
        for part in item["parts"]:
            if (update := _update(part["data_json"], user=user)) is not None:
                kind, content = update["sessionUpdate"], update["content"]
                if kind == last and kind != "tool_call":  # another text, no more of the same
                    content["text"] = _APART + content["text"]
                last = kind
                params = {"sessionId": session_id, "update": update}
                yield json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}) + "\n"


def _update(data: Mapping[str, Any], *, user: bool) -> dict[str, Any] | None:
    notes = data.get("metadata") or {}
    match data:
        case _ if notes.get("hidden"):
            return None
        case {"type": "text" | "reasoning" as kind, "text": str(text)} if text:
            chunk = "user_message_chunk" if user else f"agent_{'message' if kind == 'text' else 'thought'}_chunk"
            return {"sessionUpdate": chunk, "content": {"type": "text", "text": text}}
        case {"type": str(kind), "toolCallId": str(call_id)}:
            name = kind.removeprefix("tool-")
            input, output = data.get("input") or {}, str(data.get("output") or data.get("errorText") or "")
            if "edited" in notes:
                try:
                    name, input, end = read_call(notes["edited"])
                except SexpError:
                    return None  # the model is not shown it either
                output = notes["edited"][end:].removeprefix("\n\n")
            return {
                "sessionUpdate": "tool_call",
                "toolCallId": call_id,
                "title": name,
                "kind": next((as_kind for words, as_kind in _KINDS if re.search(words, name.lower())), "other"),
                "status": "completed" if data.get("state") == "output-available" else "failed",
                "rawInput": input,
                "content": [{"type": "content", "content": {"type": "text", "text": output}}],
            }
    return None
