"""The meter and the cache as their user has them: in Emacs, on the command line, across restarts of both."""

from __future__ import annotations

import json

from tests.e2e.conftest import System
from tests.e2e.test_conversation import converse, open_session
from tests.runtime.prefix import assert_prefix
from tests.server import ModelServer, answer, thinking, tool_use

USAGE = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 50_000}
METER = '(substring-no-properties (or (pyagentd-context--segment) ""))'


def test_the_meter_and_the_cache_survive_emacs_and_the_daemon(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    model_server.say(
        answer(thinking("Hm."), "I look.", tool_use("Read", file_path="a.txt"), usage=USAGE),
        answer("One.  \n", usage=USAGE),
        answer("Two.", usage=USAGE),
        answer("Three.", usage=USAGE),
        answer("Four.", usage=USAGE),
    )
    session, branch = system.new("meter")
    emacs = system.emacs()
    open_session(emacs, branch)
    converse(emacs, "  What is there?  \n")
    emacs.wait(f'(string-search " 50k $" {METER})')
    assert emacs.eval('(and (string-search "50k" pyagentd-status--line) t)')
    converse(emacs, "And?")
    told = json.loads(system.ok("usage", session, "--json"))
    assert told["together"]["tokens"]["cache_read"] == 150_000 and len(told["messages"]) == 2
    emacs.close()
    system.ok("stop")
    system.ok("send", session, "From the command line.")
    again = system.emacs()
    open_session(again, branch)
    again.wait(f'(string-search " 50k $" {METER})')
    converse(again, "And back.")
    assert len(model_server.requests) == 5
    assert_prefix(model_server.requests)
