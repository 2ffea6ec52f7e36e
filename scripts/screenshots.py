"""The model of the screenshots: a server that speaks the Messages API and says what is written here.

Run by ``scripts/screenshots.sh`` as ``python scripts/screenshots.py FILE``; FILE gets the server's address. The tools
that it calls are real, and so are their results.
"""

import json
import sys
import threading
from pathlib import Path

from tests.server.answers import Answer, Block, text, tool_use
from tests.server.http import Request
from tests.server.server import ModelServer

# What follows a prompt that begins so: the answers, one for each time that the model is asked.
SCRIPT: dict[str, list[list[Block]]] = {
    "`make test` fails": [
        [text("I will run the tests and look at the failure.", chunks=6), tool_use("Bash", command="make test")],
        [
            text("One test of `discounted` fails. I will look at it, and at who calls it.", chunks=6),
            tool_use("Read", file_path="shop/prices.py"),
            tool_use("Grep", pattern="discounted", path="shop"),
        ],
        [
            text(
                "`discounted` subtracts the percentage as if it were an amount: 10 % off 10.00 gives 9.90, and the "
                "test expects 9.00.\n\n"
                "```python\n"
                "def discounted(cents: int, percent: int) -> int:\n"
                "    return cents - percent  # should be: cents - cents * percent // 100\n"
                "```\n\n"
                "`orders.py` and `invoices.py` call it. Before I change it, somebody should check that neither makes "
                "up for the wrong result.",
                chunks=40,
            )
        ],
    ],
    "Have an explorer": [
        [
            text("I will hand that to an explorer.", chunks=4),
            tool_use(
                "PersistentAgent",
                preset="explorer",
                description="check callers of discounted",
                prompt="Find every caller of discounted and report which of them corrects its result.",
            ),
        ],
        [
            text(
                "Only `invoices.py` makes up for it: it multiplies first. Both have to change together.",
                chunks=20,
            )
        ],
    ],
    "Find every caller": [
        [tool_use("Grep", pattern="discounted", path="shop")],
        [tool_use("Read", file_path="shop/orders.py")],
        [tool_use("Read", file_path="shop/invoices.py")],
        [tool_use("Glob", pattern="tests/*.py")],
        [tool_use("Read", file_path="tests/test_prices.py")],
        [
            text(
                "- `shop/orders.py` passes the percentage as it is.\n"
                "- `shop/invoices.py` calls `discounted(cents, cents * percent // 100)`: it corrects the result.",
                chunks=20,
            )
        ],
    ],
    "Mend both": [
        [
            text("First the function.", chunks=2),
            tool_use(
                "Edit",
                file_path="shop/prices.py",
                old_string="    return cents - percent",
                new_string="    return cents - cents * percent // 100",
            ),
        ],
        [
            tool_use(
                "Edit",
                file_path="shop/invoices.py",
                old_string="discounted(cents, cents * percent // 100)",
                new_string="discounted(cents, percent)",
            ),
        ],
        [tool_use("Bash", command="make test")],
        [text("Both are mended, and all tests pass.", chunks=8)],
    ],
    "What is left to do": [
        [tool_use("Grep", pattern="TODO", path="shop")],
        [text("One thing: `orders.py` does not check for empty orders.", chunks=4)],
    ],
    "Which modules": [
        [tool_use("Glob", pattern="shop/*.py")],
        [text("Four: `prices`, `orders`, `invoices` and the package itself.", chunks=4)],
    ],
}


def reply(request: Request) -> Answer:
    """Return what the script has for the latest prompt of the conversation."""
    answered = 0
    for message in reversed(request.body["messages"]):
        if message["role"] == "assistant":
            answered += 1
            continue
        said = message["content"]
        texts = [said] if isinstance(said, str) else [block["text"] for block in said if block["type"] == "text"]
        for prompt, answers in SCRIPT.items():
            if any(each.startswith(prompt) for each in texts):
                return Answer(blocks=answers[min(answered, len(answers) - 1)], usage=_usage(request), pause_s=0.05)
    return Answer(blocks=[text("Done.")], usage=_usage(request))


def _usage(request: Request) -> dict[str, int]:
    tokens = len(json.dumps(request.body)) // 4
    return {"input_tokens": 400, "cache_read_input_tokens": tokens, "output_tokens": 90}


with ModelServer(rule=reply) as server:
    Path(sys.argv[1]).write_text(server.url)
    threading.Event().wait()
