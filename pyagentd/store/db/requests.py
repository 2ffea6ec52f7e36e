"""Usage of requests to models in ``state.db``: tokens and costs, summed by day, model, session or preset.

A branch has copies of what was said before it, and so has a fork; summed up over sessions each request counts once,
where it was made. Days are not made here: sums are by quarters of an hour, which no time zone cuts.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from pyagentd.messages import Usage
from pyagentd.store.conversation import Message, requests_of
from pyagentd.store.db.state import State
from pyagentd.store.document.render import writable
from pyagentd.store.journal import Served, served_by

QUARTER_MS = 15 * 60 * 1000
LENGTHS = (100_000, 128_000, 200_000, 256_000, 272_000)  # of prompts, from which on some models cost more

Grouping = Literal["quarter", "branch", "model"]

_GROUPS: Mapping[Grouping, str] = {"quarter": f"at_ms / {QUARTER_MS}", "branch": "session_id", "model": "0"}
_NAMES = ("input", "output", "reasoning", "cache_read", "cache_write")
_BUCKETS = ", ".join(_NAMES)
_PLACE = "session_id = ? AND message_id = ?"
_MOST = 10**12  # tokens; what a log says may be nonsense, and sums must not overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTotals:
    """What several requests counted together.

    Attributes:
        served: Who answered.
        longer: The greatest of ``LENGTHS`` that their prompts exceeded, 0 for none.
        requests: How many there were.
        usage: Their tokens.
    """

    served: Served
    longer: int
    requests: int
    usage: Usage


class Place(NamedTuple):
    """What a report says of a branch or agent."""

    session_id: str
    title: str
    preset: str | None
    is_agent: bool


def places(state: State) -> dict[str, Place]:
    """Return every branch and agent by its ``id``; raises as ``State.reading``."""
    with state.reading() as db:
        rows = db.execute("SELECT id, session_id, title, preset, is_agent FROM chat_sessions")
        return {key: Place(session, title, preset, bool(is_agent)) for key, session, title, preset, is_agent in rows}


def put_requests(db: sqlite3.Connection, key: str, message: Message, *, is_new: bool) -> None:
    """Write what the requests of a message counted, inside a transaction; ``is_new``: nothing of it is there yet."""
    wanted = sorted(_rows(db, message)) if message.role == "assistant" else []
    if not is_new:
        query = f"SELECT at_ms, origin, copied, served, longer, {_BUCKETS} FROM requests WHERE {_PLACE}"
        if sorted(db.execute(query, (key, message.id)).fetchall()) == wanted:
            return
        db.execute(f"DELETE FROM requests WHERE {_PLACE}", (key, message.id))
    for row in wanted:
        db.execute(_PUT, (key, message.id, *row))


def spent_json(db: sqlite3.Connection, key: str) -> str:
    """Return the sums of a branch's requests as ``chat_sessions`` keeps them, inside a transaction."""
    query = f"SELECT served, longer, {_SUMS} FROM requests WHERE session_id = ? GROUP BY 1, 2"
    return json.dumps(db.execute(query, (key,)).fetchall())


def spent_by_branch(state: State) -> dict[str, list[RequestTotals]]:
    """Return what the requests of each branch counted, copies too, by its ``id``; raises as ``State.reading``."""
    served = _known(state)
    with state.reading() as db:
        rows = db.execute("SELECT id, spent_json FROM chat_sessions WHERE spent_json <> '[]'").fetchall()
    return {key: [_counted(served, *each) for each in json.loads(text)] for key, text in rows}


def sums(state: State, by: Grouping, *, since_ms: int = 0) -> list[tuple[Any, RequestTotals]]:
    """Return what requests counted from ``since_ms`` (epoch) on, each once, in groups; raises as ``State.reading``.

    A group is the number of a quarter of an hour since the epoch, or the branch's ``id``, or 0 for all of a model;
    it is there once for each model and length of prompts.
    """
    served = _known(state)
    query = f"SELECT {_GROUPS[by]}, served, longer, {_SUMS} FROM ({_ONCE}) GROUP BY 1, 2, 3"
    with state.reading() as db:
        return [(group, _counted(served, *rest)) for group, *rest in db.execute(query, (since_ms,))]


def _known(state: State) -> dict[int, Served]:
    with state.reading() as db:
        return {id: Served(provider, model) for id, provider, model in db.execute("SELECT * FROM served")}


def _counted(served: Mapping[int, Served], number: int, longer: int, requests: int, *tokens: int) -> RequestTotals:
    usage = Usage(**dict(zip(_NAMES, tokens, strict=True)))
    return RequestTotals(served=served.get(number, Served("", "")), longer=longer, requests=requests, usage=usage)


def _rows(db: sqlite3.Connection, message: Message) -> Iterator[tuple[int, ...]]:
    found = list(requests_of(message))
    if not found:
        return
    first = (message.row.get("metadata_json") or {}).get("copied_from")
    served = _number(db, served_by(message.row))
    for index, (at_ms, usage) in enumerate(found):
        origin = _origin(str(first or message.id), index)
        counts = (min(getattr(usage, name), _MOST) for name in _NAMES)
        yield (at_ms, origin, int(bool(first)), served, _longer(usage), *counts)


def _longer(usage: Usage) -> int:
    prompt = usage.input + usage.cache_read + usage.cache_write
    return max((length for length in LENGTHS if prompt > length), default=0)


def _number(db: sqlite3.Connection, served: Served) -> int:
    values = (writable(served.provider), writable(served.model))
    db.execute("INSERT OR IGNORE INTO served (provider, model) VALUES (?, ?)", values)
    (number,) = db.execute("SELECT id FROM served WHERE provider = ? AND model = ?", values).fetchone()
    return int(number)


def _origin(message_id: str, index: int) -> int:
    digest = blake2b(f"{message_id} {index}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


_PUT = (
    f"INSERT INTO requests (session_id, message_id, at_ms, origin, copied, served, longer, {_BUCKETS})"
    f" VALUES ({', '.join('?' * 12)})"
)
_SUMS = "count(*), " + ", ".join(f"sum({name})" for name in _NAMES)
_ONCE = (  # of copies the original, or another one where that is gone; SQLite takes all columns from that row
    f"SELECT at_ms, session_id, served, longer, {_BUCKETS}, min(copied) FROM requests WHERE at_ms >= ?"
    " GROUP BY at_ms, origin"
)
