"""Run the server as a process of its own: it prints its port and serves until its standard input ends.

python -m tests.server --mode burst --deltas 20000 --per-write 1
"""

from __future__ import annotations

import argparse
import sys

from tests.server.answers import answer, text
from tests.server.server import ModelServer, Rule
from tests.server.streams import burst, paced, tool_turns


def _rule(options: argparse.Namespace) -> Rule:
    match options.mode:
        case "burst":
            given = burst(options.deltas, per_write=options.per_write, word=options.word)
            return lambda request: given
        case "paced":
            slow = paced(options.rate, seconds=options.seconds, word=options.word)
            return lambda request: slow
        case "tool-turns":
            return tool_turns(options.turns, name=options.tool)
        case _:
            return lambda request: answer(text(options.text, chunks=max(1, len(options.text) // 6)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.server", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--mode", choices=["text", "burst", "paced", "tool-turns"], default="text")
    parser.add_argument("--text", default="Hello from the model server.", help="text: what to answer")
    parser.add_argument("--word", default="token ", help="burst, paced: the text of a delta")
    parser.add_argument("--deltas", type=int, default=10_000, help="burst: how many")
    parser.add_argument("--per-write", type=int, default=50, help="burst: deltas in one chunk and write")
    parser.add_argument("--rate", type=float, default=200.0, help="paced: deltas a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="paced: how long")
    parser.add_argument("--turns", type=int, default=20, help="tool-turns: calls before the end")
    parser.add_argument("--tool", default="Glob", help="tool-turns: which tool")
    return parser.parse_args()


def main() -> None:
    options = _options()
    with ModelServer(port=options.port, rule=_rule(options)) as server:
        print(server.port, flush=True)
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
