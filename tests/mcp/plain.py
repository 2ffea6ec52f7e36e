#!/usr/bin/env python3
"""A server of the Model Context Protocol in plain Python, which starts at once and goes wrong on request.

Own words on both sides would hide a shared misunderstanding, so it imports neither ours nor the SDK. Its first
argument says how it goes wrong from the beginning: silent, dies, noisy, or the method that it does not answer. Every
message it gets is a line of ``$SEEN``. The prompts are listed once there is a file ``$READY``, where that is set.
"""

import json
import os
import sys
import time

TOOLS = {
    "echo": ({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}, True),
    "count": ({"type": "object"}, False),  # how often this process was asked
    "env": ({"type": "object"}, True),
    "die": ({"type": "object"}, False),
    "fail": ({"type": "object"}, False),
    "hang": ({"type": "object"}, False),
    "long": ({"type": "object", "properties": {"bytes": {"type": "integer"}}}, False),
    "line": ({"type": "object", "properties": {"bytes": {"type": "integer"}}}, False),
    "grow": ({"type": "object"}, False),
    "picture": ({"type": "object"}, True),
    "write": ({"type": "object", "properties": {"path": {"type": "string"}}}, False),
}
many, counted, grown = int(os.environ.get("MANY", "0")), 0, False


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tools():
    names = [
        *TOOLS,
        *([os.environ["NAMED"]] if "NAMED" in os.environ else []),
        *(["grown"] if grown else []),
        *(f"more_{number}" for number in range(many)),
    ]
    if "WRONG" in os.environ:  # tools that no client can use
        yield {"name": "no_schema", "description": "To fail"}
        yield {"name": "odd_schema", "inputSchema": {"type": "object", "properties": {"a": {"type": "strange"}}}}
        yield from ({"name": f"no_schema_{number}"} for number in range(int(os.environ["WRONG"]) - 1))
    if "WIDE" in os.environ:
        wide = {str(number): {"type": "odd"} for number in range(99_999)}
        yield {"name": "wide", "inputSchema": {"type": "object", "properties": wide}}
    for name in names:
        schema, looks = TOOLS.get(name, ({"type": "object"}, True))
        yield {
            "name": name,
            "description": f"To {name}",
            "inputSchema": schema,
            "annotations": {"readOnlyHint": looks},
            **({"outputSchema": json.loads(os.environ["PROMISED"])} if "PROMISED" in os.environ else {}),
        }


def call(name, args):
    global counted, grown
    counted += 1
    match name:
        case "echo":
            return [{"type": "text", "text": args["text"]}]
        case "count":
            return [{"type": "text", "text": str(counted)}]
        case "env":
            return [{"type": "text", "text": json.dumps(dict(os.environ))}]
        case "die":
            print("I cannot go on", file=sys.stderr, flush=True)
            os._exit(3)
        case "hang":
            return None
        case "long":
            return [{"type": "text", "text": "x" * 99 + "\n"} for _ in range(args["bytes"] // 100)]
        case "line":
            sys.stdout.write("x" * args["bytes"])
            sys.stdout.flush()
            time.sleep(60)
        case "grow":
            grown = True
            say({"method": "notifications/tools/list_changed"})
            return [{"type": "text", "text": "grown"}]
        case "write":
            with open(args["path"], "w") as file:  # noqa: PTH123 - as below
                file.write("after")
            return [{"type": "text", "text": "written"}]
        case "picture":
            return [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]
    return [{"type": "text", "text": f"{name} of {os.getpid()}"}]


PROMPT = {"name": "review", "description": "Look at a file", "arguments": [{"name": "file", "required": True}]}
RESOURCE = {"uri": "memo://notes/1", "name": "first", "mimeType": "text/plain"}


def answer(method, params):
    match method:
        case "initialize":
            can = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
            info = {"name": "plain", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": can, "serverInfo": info}
        case "tools/list":
            return {"tools": list(tools())}
        case "tools/call":
            found = call(params["name"], params.get("arguments") or {})
            given = {"structuredContent": params["arguments"]} if "PROMISED" in os.environ else {}
            return found and {"content": found, "isError": params["name"] == "fail", **given}
        case "resources/list":
            return {"resources": [RESOURCE]}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "memo://notes/{id}", "name": "any"}]}
        case "resources/read":
            if not params["uri"].startswith("memo://"):
                return KeyError(f"no resource {params['uri']}")
            return {"contents": [{"uri": params["uri"], "mimeType": "text/plain", "text": f"Says {params['uri']}."}]}
        case "prompts/list":
            while "READY" in os.environ and not os.path.exists(os.environ["READY"]):  # noqa: PTH110 - as below
                time.sleep(0.01)
            return {"prompts": [PROMPT]}
        case "prompts/get":
            text = f"Review {params['arguments']['file']} carefully."
            return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    return LookupError(f"there is no method {method}")


def main():
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    if mode == "dies":
        print("no database", file=sys.stderr)
        sys.exit(7)
    if mode == "noisy":
        print("Welcome!\n\n{not json", flush=True)
    for line in sys.stdin:
        if path := os.environ.get("SEEN"):
            with open(path, "a") as file:  # noqa: PTH123 - pathlib takes as long to load as all the rest
                file.write(line)
        message = json.loads(line)
        if "id" not in message or mode in ("silent", message["method"]):
            continue
        found = answer(message["method"], message.get("params") or {})
        if isinstance(found, Exception):
            say({"id": message["id"], "error": {"code": -32601, "message": str(found.args[0])}})
        elif found is not None:
            say({"id": message["id"], "result": found})


main()
