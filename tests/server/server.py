"""The server: a script of answers behind the APIs' addresses, in a thread with its own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable

from tests.server import chat, clouds, gemini, responses
from tests.server.answers import Scripted, answer, refusal
from tests.server.http import Gone, Reply, Request, json_reply, read_request, write_reply
from tests.server.rules import missing_key, problems

Rule = Callable[[Request], Scripted]

_PROBLEMS: dict[str, Callable[[Request], Iterable[str]]] = {
    "/v1/messages": lambda request: [*clouds.problems(request), *problems(request)],
    chat.PATH: chat.problems,
    responses.PATH: responses.problems,
    gemini.PATH: gemini.problems,
}
_EPOCH = "1970-01-01T00:00:00Z"
_BACKLOG = 512  # clients that connect together; one too many waits for seconds before it tries again


class ModelServer:
    """Answers from a queue, then by a rule; records what it was asked.

    Attributes:
        requests: Every request, in the order they came.
        connections: How many connections were accepted.
        hangups: How many answers the client did not wait for.
        rule: What answers when the queue is empty; says "ok" unless set.
        models: What it says it has; None: it has no such list.
        listings: How often it was asked for that, which is not a request of a conversation.
    """

    def __init__(self, *, port: int = 0, rule: Rule | None = None) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.hangups = 0
        self.models: tuple[str, ...] | None = None
        self.listings = 0
        self.rule: Rule = rule or (lambda request: answer("ok"))
        self._port = port
        self._queue: deque[Scripted | Rule] = deque()
        self._changed = threading.Condition()
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="model server", daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """The base URL for a client."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def last(self) -> Request:
        """The request that came last."""
        return self.requests[-1]

    def say(self, *answers: Scripted | Rule | str) -> None:
        """Queue answers; a string is an answer of one text block, a function is asked with the request."""
        self._queue.extend(answer(one) if isinstance(one, str) else one for one in answers)

    def wait_until(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        """Block until ``condition`` is true; it is looked at whenever a request, a connection or a hangup came."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout_s), "the model server waited in vain"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._converse, "127.0.0.1", self._port, backlog=_BACKLOG)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()  # from Python 3.12 on ``async with`` would wait for every client to hang up
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._note(connections=1)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            try:
                while (request := await read_request(reader)) is not None:
                    await write_reply(reader, writer, self._reply(request))
            except Gone as gone:
                self._note(hangups=int(gone.by_client))
            finally:
                writer.close()

    def _reply(self, request: Request) -> Reply:
        if request.method == "GET" and request.path == "/v1/models":
            return self._list(request)
        request = gemini.read(clouds.as_messages(request))
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        return clouds.as_cloud(request, self._choose(request).reply(request))

    def _list(self, request: Request) -> Reply:
        self._note(listings=1)
        if missing_key(request) or "refused" in map(request.headers.get, ("x-api-key", "x-goog-api-key")):
            return refusal(401, "authentication_error", "invalid x-api-key").reply(request)
        if self.models is None:
            return refusal(404, "not_found_error", f"{request.method} {request.path}").reply(request)
        if "x-goog-api-key" in request.headers:
            return json_reply(200, gemini.listed(self.models))
        listed = [{"type": "model", "id": name, "display_name": name, "created_at": _EPOCH} for name in self.models]
        return json_reply(200, {"data": listed, "has_more": False, "first_id": None, "last_id": None})

    def _choose(self, request: Request) -> Scripted:
        if request.method != "POST" or request.path not in _PROBLEMS:
            return refusal(404, "not_found_error", f"{request.method} {request.path}")
        if missing_key(request):
            return refusal(401, "authentication_error", "x-api-key header is required")
        if found := list(_PROBLEMS[request.path](request)):
            return refusal(400, "invalid_request_error", "; ".join(found))
        with self._changed:
            chosen = self._queue.popleft() if self._queue else self.rule
        return chosen(request) if callable(chosen) else chosen

    def _note(self, *, connections: int = 0, hangups: int = 0, listings: int = 0) -> None:
        with self._changed:
            self.listings += listings
            self.connections += connections
            self.hangups += hangups
            self._changed.notify_all()
