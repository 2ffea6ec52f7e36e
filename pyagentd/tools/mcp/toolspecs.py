"""Tools of MCP servers as ``ToolSpec`` values: names, schemas, and the text of their results.

A server is somebody else's program: its description of a tool is bounded, its schema made to fit what providers take,
and every call is asked about unless a profile, a grant, or the user's trust in the server says otherwise.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import mimetypes
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.config.tables import ServerSettings
from pyagentd.jsontext import MAX_DEPTH, is_deeper
from pyagentd.tools import invoke
from pyagentd.tools.mcp.connection import CallResult, Connection, Piece, ServerTool
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec

if TYPE_CHECKING:
    from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents


# What a server answered, as text for a model: what is no text is kept in a file that the text names.
#
# Also what the SDK's classes say, as values of ``catalog``; they are told apart by their ``type``.


def parse_result(result: "CallToolResult") -> CallResult:
    """Return what the SDK gives of a call."""
    pieces = tuple(map(piece_of, result.content))
    return CallResult(pieces=pieces, structured=result.structured_content, ok=not result.is_error)


def piece_of(block: "ContentBlock") -> Piece:
    """Return one part of an answer."""
    match block.type:
        case "text":
            return Piece(text=block.text)
        case "image" | "audio":
            return Piece(data=_bytes(block.data), mime=block.mime_type)
        case "resource":
            return piece_of_resource(block.resource)
        case "resource_link":
            told = ": ".join(filter(None, (block.title or block.name, block.description)))
            return Piece(text=f"[resource {block.uri}{f' ({told})' if told else ''}]")


def piece_of_resource(contents: "TextResourceContents | BlobResourceContents") -> Piece:
    """Return what a resource holds."""
    mime = contents.mime_type or ""
    text = getattr(contents, "text", None)
    if text is not None:
        return Piece(text=text, mime=mime, uri=contents.uri)
    return Piece(data=_bytes(getattr(contents, "blob", "")), mime=mime, uri=contents.uri)


def text_of(answer: CallResult, directory: Path, name: str) -> str:
    """Return an answer as text, and keep in ``directory`` what is none; blocks.

    Args:
        answer: What the server said.
        directory: Where files go; made on demand.
        name: What the files are called after.

    Raises:
        OSError: A file cannot be written.
    """
    texts = result_texts(answer.pieces, directory, name)
    if not any(texts) and answer.structured is not None:
        texts = [json.dumps(answer.structured, ensure_ascii=False, indent=1)]
    return "\n".join(texts) or ("(no output)" if answer.ok else "(it failed and said nothing)")


def result_texts(pieces: Iterable[Piece], directory: Path, name: str) -> list[str]:
    """Return each piece as text; raises as ``text_of``."""
    return [_told(piece, directory, name) for piece in pieces]


def _told(piece: Piece, directory: Path, name: str) -> str:
    if piece.data is None:
        return piece.text if not piece.uri else f"[resource {piece.uri}]\n{piece.text}"
    path = _saved(piece, directory, name)
    what = f"resource {piece.uri}, " if piece.uri else ""
    return f"[{what}{piece.mime or 'data'}, {len(piece.data)} bytes, kept in {path}]"


def _saved(piece: Piece, directory: Path, name: str) -> Path:
    descriptor, path = invoke.create(directory, name)
    with os.fdopen(descriptor, "wb") as file:
        file.write(piece.data or b"")
    ending = mimetypes.guess_extension(piece.mime.partition(";")[0].strip()) or ".bin"
    return path.rename(path.with_suffix(ending))


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=False)
    except (binascii.Error, ValueError):
        return text.encode()


LONGEST_NAME = 64  # as providers take it
_LONGEST_DESCRIPTION = 4000
_LONGEST_SCHEMA = 50_000  # characters
_SHOWN = 200  # characters of arguments in one line

_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")


def tools_let_through(settings: ServerSettings, tools: Iterable[ServerTool]) -> list[ServerTool]:
    """Return the tools of a server that its settings let through, in the server's order."""
    patterns = settings.tools
    return [each for each in tools if patterns is None or any(fnmatchcase(each.name, one) for one in patterns)]


def specs(
    settings: ServerSettings, connection: Connection, tools: Iterable[ServerTool], shared: Collection[str] = ()
) -> list[ToolSpec]:
    """Return tools of a server as ours; ``shared`` are the names that one server's tool alone must not have."""
    return [_spec(settings, connection, tool, shared) for tool in tools]


def shared_names(tools: Iterable[tuple[str, str]]) -> set[str]:
    """Return the names that several tools would have, each given as server and tool: ``a`` ``b_c``, ``a_b`` ``c``."""
    return {name for name, count in Counter(starmap(tool_name, set(tools))).items() if count > 1}


def unique_tools(found: Iterable[ToolSpec], taken: Collection[str]) -> dict[str, ToolSpec]:
    """Return tools by name; one whose name is an earlier one's is left out: nobody could say which was meant."""
    tools: dict[str, ToolSpec] = {}
    for spec in found:
        if spec.name not in taken:
            tools.setdefault(spec.name, spec)
    return tools


def tool_name(server: str, tool: str, shared: Collection[str] = ()) -> str:
    """Return what the model calls a tool of a server: ``<server>_<tool>``.

    One that providers do not take, or that is also another's, has a mark at its end that is the tool's alone.
    """
    name = f"{server}_{tool}"
    fitting = _NO_NAME.sub("_", name)
    if fitting == name and len(name) <= LONGEST_NAME and name not in shared:
        return name
    mark = hashlib.sha256(rule_of(server, tool).encode(errors="replace")).hexdigest()[:6]
    return f"{fitting[: LONGEST_NAME - 7]}_{mark}"


def rule_of(server: str, tool: str) -> str:
    """Return how profiles and grants speak of a tool of a server."""
    return f"mcp:{server}:{tool}"


def _spec(settings: ServerSettings, connection: Connection, tool: ServerTool, shared: Collection[str]) -> ToolSpec:
    name = tool_name(settings.name, tool.name, shared)
    looks = settings.trusted and tool.only_looks

    async def run(args: Args, ctx: ToolContext) -> Output:
        answer = await connection.call(tool.name, args)
        return Output(text=await asyncio.to_thread(text_of, answer, ctx.spool_dir, name), ok=answer.ok)

    return ToolSpec(
        name=name,
        description=_description(settings.name, tool),
        input_schema=_schema(tool.schema),
        kind="mcp",
        run=run,
        describe=lambda args, ctx: Target(
            detail=_one_line(args), rule=rule_of(settings.name, tool.name), roams=bool(settings.command) and not looks
        ),
        preview=lambda args, ctx: json.dumps(args, ensure_ascii=False, indent=2) if args else "",
        confirm=not looks,
        parallel_safe=looks,
        timeout_s=settings.call_s,
    )


def _description(server: str, tool: ServerTool) -> str:
    text = tool.description.strip()
    cut = text if len(text) <= _LONGEST_DESCRIPTION else f"{text[:_LONGEST_DESCRIPTION]}…"
    return cut or f"{tool.name} of the MCP server {server}"


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that providers take and that checks no more than the server does.

    What has no word about further properties allows them, which is what JSON Schema says.
    """
    try:
        sent = json.dumps(schema, allow_nan=False)
    except (ValueError, RecursionError, TypeError):  # no JSON: every request with it would be refused
        sent = ""
    if not 0 < len(sent) <= _LONGEST_SCHEMA or is_deeper(schema, MAX_DEPTH):
        return {"type": "object", "properties": {}, "additionalProperties": True}
    made = _opened({key: value for key, value in schema.items() if key not in ("anyOf", "oneOf", "allOf", "$schema")})
    made["type"] = "object"
    if not isinstance(made.get("properties"), Mapping):
        made["properties"] = {}
    if not isinstance(made.get("required", []), list):
        del made["required"]
    return made


def _opened(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping):  # true: anything will do
        return {}
    made = dict(schema)
    if isinstance(properties := schema.get("properties"), Mapping):
        made["properties"] = {name: _opened(each) for name, each in properties.items()}
        made.setdefault("additionalProperties", True)
    if "items" in schema:
        made["items"] = _opened(schema["items"])
    return made


def _one_line(args: Args) -> str:
    text = json.dumps(args, ensure_ascii=False) if args else ""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
