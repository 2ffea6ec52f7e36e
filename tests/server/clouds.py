"""Anthropic's Messages API at Bedrock and Vertex: other addresses, other fields, and frames around Bedrock's events.

From AWS' reference of InvokeModelWithResponseStream and its event stream encoding, and Google's of streamRawPredict.
"""

import base64
import dataclasses
import json
import re
import struct
import urllib.parse
import zlib
from collections.abc import Iterable, Iterator

from tests.server.http import Reply, Request, Step

_BEDROCK = re.compile(r"/model/([^/]+)/invoke-with-response-stream")
_VERTEX = re.compile(r"/projects/([^/]+)/locations/([^/]+)/publishers/anthropic/models/([^/:]+):streamRawPredict")


def as_messages(request: Request) -> Request:
    """Return a request to a cloud as one of the Messages API, with what the cloud refuses in ``cloud-refuses``."""
    found = _BEDROCK.fullmatch(request.path) or _VERTEX.fullmatch(request.path)
    if found is None or request.method != "POST":
        return request
    bedrock, body = found.re is _BEDROCK, dict(request.body)
    wrong = [key for key in (("model", "stream") if bedrock else ("model",)) if key in body]
    version = body.pop("anthropic_version", "")
    if not version:
        wrong.append("anthropic_version: missing")
    body["model"] = urllib.parse.unquote(found[1 if bedrock else 3])
    headers = {**request.headers, "anthropic-version": str(version), "cloud-refuses": ", ".join(wrong)}
    if bedrock:
        body["stream"] = True
        headers["cloud"] = "bedrock"
    return dataclasses.replace(request, path="/v1/messages", headers=headers, body=body)


def problems(request: Request) -> Iterator[str]:
    """Yield what a cloud refuses beside what the Messages API does."""
    if refused := request.headers.get("cloud-refuses"):
        yield f"{refused}: Extra inputs are not permitted"


def as_cloud(request: Request, reply: Reply) -> Reply:
    """Return a reply as the cloud that was asked sends it."""
    if request.headers.get("cloud") != "bedrock" or reply.body is not None:
        return reply
    headers = {**reply.headers, "content-type": "application/vnd.amazon.eventstream"}
    return dataclasses.replace(reply, headers=headers, steps=_frames(reply.steps))


def _frames(steps: Iterable[Step]) -> Iterator[Step]:
    for step in steps:
        if not isinstance(step, bytes):
            yield step
            continue
        for data in re.findall(rb"^data: (.*)$", step, re.MULTILINE):
            yield _frame(json.dumps({"bytes": base64.b64encode(data).decode()}).encode())


def _frame(payload: bytes) -> bytes:
    """Return a message of AWS' event stream encoding: lengths, headers, payload, and a checksum of each half."""
    given = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack(f"!B{len(name)}sBH{len(value)}s", len(name), name.encode(), 7, len(value), value.encode())
        for name, value in given.items()
    )
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", zlib.crc32(message))
