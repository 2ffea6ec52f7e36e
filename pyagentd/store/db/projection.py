"""The tables and the full-text index that are derived from session files.

A branch is indexed in one transaction, from one state of its files. The stamps of its files tell whether the index is
current, so changes by other programs and machines are noticed.
"""

import hashlib
import json
import logging
import os
import re
import sqlite3
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypedDict

from pyagentd import regularfile
from pyagentd.errors import BadRequest, StoreError
from pyagentd.messages import Usage
from pyagentd.store import metadata, paths
from pyagentd.store.conversation import Conversation, Message, Part, RunState, requests_of
from pyagentd.store.db.state import State
from pyagentd.store.document.files import document_cache
from pyagentd.store.document.pieces import DocumentPiece, PieceKind, found_pieces, recorded_pieces
from pyagentd.store.document.reconcile import align
from pyagentd.store.document.render import writable
from pyagentd.store.document.text import Document, Span
from pyagentd.store.journal import Numbering, ProviderModel, Row, chunks, read_rows, row_of, rows_of, served_by
from pyagentd.store.paths import BranchRef

# Usage of requests to models in ``state.db``: tokens and costs, summed by day, model, session or preset.
#
# Branches and forks hold copies of earlier messages; in sums over sessions each request counts once, where it was
# made. Sums are by quarters of an hour, which can be added up to days in any time zone.

QUARTER_MS = 15 * 60 * 1000
_NEVER = float("inf")
LENGTHS = (100_000, 128_000, 200_000, 256_000, 272_000)  # of prompts, from which on some models cost more

Grouping = Literal["quarter", "branch", "model"]

_GROUPS: Mapping[Grouping, str] = {"quarter": f"at_ms / {QUARTER_MS}", "branch": "session_id", "model": "0"}
_NAMES = ("input", "output", "reasoning", "cache_read", "cache_write")
_BUCKETS = ", ".join(_NAMES)
_PLACE = "session_id = ? AND message_id = ?"
_MOST = 10**12  # tokens; what a log says may be nonsense, and sums must not overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTotals:
    """The sums of several requests.

    Attributes:
        served: The provider and model that answered.
        longer: The greatest of ``LENGTHS`` that their prompts exceeded, 0 for none.
        requests: Their number.
        usage: Their tokens.
    """

    served: ProviderModel
    longer: int
    requests: int
    usage: Usage


class Place(NamedTuple):
    """A branch or agent in a report."""

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
    """Write the usage of a message's requests, inside a transaction; ``is_new``: the message has no rows yet."""
    wanted = sorted(_rows(db, message)) if message.role == "assistant" else []
    if not is_new:
        query = f"SELECT at_ms, origin, copied, served, longer, {_BUCKETS} FROM requests WHERE {_PLACE}"
        if sorted(db.execute(query, (key, message.id)).fetchall()) == wanted:
            return
        db.execute(f"DELETE FROM requests WHERE {_PLACE}", (key, message.id))
    for row in wanted:
        db.execute(_PUT, (key, message.id, *row))


SpentByModel = dict[tuple[int, int], tuple[int, ...]]
"""Sums of requests, see ``_SUMS``, by the model and the length that their prompts exceeded."""


def request_sums(db: sqlite3.Connection, key: str, some: str = "", given: Sequence[str] = ()) -> SpentByModel:
    """Return the sums of a branch's requests, or of those under a condition, inside a transaction."""
    query = f"SELECT served, longer, {_SUMS} FROM requests WHERE session_id = ?{some} GROUP BY 1, 2"
    return {(served, longer): tuple(counts) for served, longer, *counts in db.execute(query, (key, *given))}


def spent_by_branch(state: State) -> dict[str, list[RequestTotals]]:
    """Return the sums of each branch, copies included, by its ``id``; raises as ``State.reading``."""
    served = _services(state)
    with state.reading() as db:
        rows = db.execute("SELECT id, spent_json FROM chat_sessions WHERE spent_json <> '[]'").fetchall()
    return {key: [_request_totals(served, *each) for each in json.loads(text)] for key, text in rows}


def sums(state: State, by: Grouping, *, since_ms: int = 0) -> list[tuple[Any, RequestTotals]]:
    """Return the sums of requests since ``since_ms`` (epoch), each counted once; raises as ``State.reading``.

    They are grouped by the number of a quarter of an hour since the epoch, or by the branch's ``id``, or all under 0;
    each group has an entry for each model and length of prompts.
    """
    served = _services(state)
    query = f"SELECT {_GROUPS[by]}, served, longer, {_SUMS} FROM ({_ONCE}) GROUP BY 1, 2, 3"
    with state.reading() as db:
        return [(group, _request_totals(served, *rest)) for group, *rest in db.execute(query, (since_ms,))]


def _services(state: State) -> dict[int, ProviderModel]:
    with state.reading() as db:
        return {id: ProviderModel(provider, model) for id, provider, model in db.execute("SELECT * FROM served")}


def _request_totals(
    served: Mapping[int, ProviderModel], number: int, longer: int, requests: int, *tokens: int
) -> RequestTotals:
    usage = Usage(**dict(zip(_NAMES, tokens, strict=True)))
    return RequestTotals(
        served=served.get(number, ProviderModel("", "")), longer=longer, requests=requests, usage=usage
    )


def _rows(db: sqlite3.Connection, message: Message) -> Iterator[tuple[int, ...]]:
    found = list(requests_of(message))
    if not found:
        return
    first = (message.row.get("metadata_json") or {}).get("copied_from")
    served = _number(db, served_by(message.row))
    for index, (at_ms, usage) in enumerate(found):
        origin = _origin(str(first or message.id), index)
        counts = (min(getattr(usage, name), _MOST) for name in _NAMES)
        prompt = usage.input + usage.cache_read + usage.cache_write
        longer = max((length for length in LENGTHS if prompt > length), default=0)
        yield (at_ms, origin, int(bool(first)), served, longer, *counts)


def _number(db: sqlite3.Connection, served: ProviderModel) -> int:
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


# The searchable text of each part of a conversation.
#
# It is a pure function of the columns of a part, because the index keeps no text: to remove a text, it is made from
# the stored columns again. A change of what it returns needs a migration that empties the index.

Kind = Literal["text", "reasoning", "tool", "compaction", "file", "title"]

_OTHERS: Mapping[str, tuple[Kind, tuple[str, ...]]] = {
    "data-compaction": ("compaction", ("summary",)),
    "file": ("file", ("filename", "url")),
    "source-url": ("file", ("title", "url")),
    "source-document": ("file", ("title", "filename")),
}


def part_text(type: str, data: Mapping[str, Any], streamed: str, edited: str | None) -> tuple[Kind, str]:
    """Return the kind of a part and its searchable text, "" for none.

    Args:
        type: As recorded.
        data: The part in AI SDK form.
        streamed: Text that came after ``data`` was recorded.
        edited: The user's text that replaces it, or None.
    """
    if type in ("text", "reasoning"):
        text = str(data.get("text", "")) + streamed if edited is None else edited
        return ("text" if type == "text" else "reasoning"), text.strip()
    if type.startswith("tool-"):
        return "tool", _tool_text(data) if edited is None else edited.strip()
    kind, names = _OTHERS.get(type, ("file", ()))
    return kind, "\n".join(str(data[name]) for name in names if data.get(name))


def _tool_text(data: Mapping[str, Any]) -> str:
    name = str(data.get("type", "")).removeprefix("tool-")
    result = data.get("output") if data.get("state") == "output-available" else data.get("errorText")
    call = " ".join([name, *_arguments(data.get("input"))])
    return f"{call}\n{result}".strip() if result else call


def _arguments(value: Any) -> Iterator[str]:
    """Yield names and values of a call; texts unencoded, because the escaped line ends of JSON would join words."""
    match value:
        case str():
            yield value
        case Mapping():
            for key, inner in value.items():
                yield f"{key}:"
                yield from _arguments(inner)
        case list():
            for inner in value:
                yield from _arguments(inner)
        case None:
            pass
        case _:
            yield json.dumps(value)


# Reading what was appended to a log since the last time.
#
# A reader keeps a ``Bookmark``. The log goes on from there if the bytes before it are the same and more follow; a
# log that was replaced, cut or repaired is read from its beginning.

_WITNESS = 512  # bytes before a bookmark that must be the same


class Bookmark(NamedTuple):
    """How far a log was read: an offset, the number of the last row, and a hash of the bytes before it."""

    end: int = 0
    seq: int = 0
    witness: str = ""


def read_from(path: Path, mark: Bookmark) -> tuple[list[Row], Bookmark] | None:
    """Return the rows after ``mark`` and the new mark; None if the log does not continue from there.

    Raises:
        StoreError: The log cannot be read; a missing file is an empty log.
    """
    try:
        with regularfile.open_binary(path, limit=regularfile.LOG) as file:
            size = os.fstat(file.fileno()).st_size
            if mark.end > size or _witness(file, mark.end) != mark.witness:
                return None
            rows, end, numbering = _read(file, mark, size)
            if numbering.disordered:
                return None if mark.end else (read_rows(path), Bookmark(witness="-"))
            return rows, Bookmark(end, numbering.last_seq, _witness(file, end))
    except FileNotFoundError:
        return ([], Bookmark()) if mark.end == 0 else None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def _read(file: BinaryIO, mark: Bookmark, size: int) -> tuple[list[Row], int, Numbering]:
    def read(length: int, offset: int) -> bytes:
        file.seek(offset)
        return file.read(length)

    numbering = Numbering(last_seq=mark.seq)
    rows: list[Row] = []
    end = mark.end
    for chunk in chunks(read, mark.end, size):
        if not chunk.complete and row_of(chunk.text) is None:
            break  # being written, or torn
        found, _ = rows_of(numbering.usable_lines(chunk.text))
        rows += found
        end = chunk.end
    return rows, end, numbering


def _witness(file: BinaryIO, end: int) -> str:
    start = max(0, end - _WITNESS)
    file.seek(start)
    return hashlib.blake2b(file.read(end - start), digest_size=8).hexdigest() if end else ""


# A search query, as an expression of the index and as a finder of its words in a text.
#
# All words must occur, ``"…"`` is a phrase, ``-`` in front excludes, and the last word may be the beginning of one.
# Nothing a person types is syntax of the index: all of it is quoted. Case, diacritics and punctuation do not count,
# so ``foo.bar(x)`` finds itself, and a path finds its parts in order.
#
# Scripts that put no spaces between words are cut into single characters, in the text as in the query; neighbours in
# the query must be neighbours in the text, so every substring is found.

MAX_TERMS = 64  # more say nothing more, and the index has a limit
_PREFIX_FROM = 2  # characters; fewer begin too many words

# Thai, Lao, Myanmar, Khmer, Hangul, Kana, Bopomofo, Han with its extensions; ranges for a character class.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u318f\u31a0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uaa60-\uaa7f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U00016fe0-\U00018dff\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
_SINGLE = re.compile(f"([{_UNSPACED}])")
_TERM = re.compile(r'(-?)"([^"]*)"?|([^\s"]+)')
_MARKS = "[\u0300-\u036f]*"
_WORD = f"[^\\W_{_UNSPACED}]"
_TOKEN = re.compile(f"[{_UNSPACED}]|{_WORD}(?:{_WORD}|[\u0300-\u036f])*")


@dataclass(frozen=True, slots=True)
class Term:
    """A word or phrase; ``is_open``: it may be the beginning of a longer word."""

    text: str
    is_open: bool = False
    is_excluded: bool = False

    @property
    def quoted(self) -> str:
        """The term as a string of the index's language."""
        return '"' + segment(self.text).replace('"', '""') + '"' + (" *" if self.is_open else "")


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query; see ``parse``."""

    wanted: tuple[Term, ...]
    excluded: tuple[Term, ...]

    @property
    def expression(self) -> str:
        """The query in the language of SQLite's FTS5."""
        wanted = " AND ".join(term.quoted for term in self.wanted)
        excluded = " OR ".join(term.quoted for term in self.excluded)
        return f"({wanted}) NOT ({excluded})" if excluded else wanted

    def finder(self) -> "Finder":
        """Return a finder of the wanted words in a text."""
        return Finder(self.wanted)


def parse(text: str) -> Query:
    """Return ``text`` as a query.

    Raises:
        BadRequest: It has no word to search for.
    """
    terms = [term for term in _terms(writable(text.replace("\0", " "))) if _TOKEN.search(term.text)][:MAX_TERMS]
    wanted = tuple(term for term in terms if not term.is_excluded)
    if not wanted:
        raise BadRequest("The query has no word to look for", hint='Give words, a "phrase", or words and -exclusions')
    return Query(wanted, tuple(term for term in terms if term.is_excluded))


def segment(text: str) -> str:
    """Return ``text`` for the index: characters of scripts without spaces are separated, and SQLite can bind it."""
    return writable(text if text.isascii() else _SINGLE.sub(r" \1 ", text))


class Finder:
    """Finds the words of a query in a text, by nearly the same rules as the index."""

    def __init__(self, terms: Sequence[Term]) -> None:
        patterns = dict.fromkeys(pattern for term in terms if (pattern := _pattern(term)))
        self._found = re.compile("|".join(sorted(patterns, key=len, reverse=True)) or r"(?!)")

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the places of the query's words, as offsets in code points, in order."""
        return (found.span() for found in self._found.finditer(fold_case(text)))

    def preview(self, text: str, length: int = 200) -> tuple[str, list[tuple[int, int]]]:
        """Return about ``length`` characters around the first match on one line, and the matches in them."""
        first, end = next(self.spans(text), (0, 0))
        start = max(0, first - max(0, length - (end - first)) // 3)
        if start and (space := re.search(r"\s+", text[start:first])):
            start += space.end()
        cut = text[start : max(end, start + length)]
        line = " ".join(cut.split())
        shown = ("…" if start else "") + line + ("…" if start + len(cut) < len(text.rstrip()) else "")
        return shown, list(self.spans(shown))


def fold_case(text: str) -> str:
    """Return ``text`` in lower case and without diacritics, of the same length."""
    return text.lower() if text.isascii() else text.translate(_FOLD)


class _Fold(dict[int, str]):
    """Folds a character to one character; combining marks stay and are skipped by the patterns."""

    def __missing__(self, code: int) -> str:
        base = unicodedata.normalize("NFD", chr(code))[0]
        lower = base.lower()
        self[code] = lower if len(lower) == 1 and not _SINGLE.match(chr(code)) else chr(code)
        return self[code]


_FOLD = _Fold()


def _terms(text: str) -> Iterator[Term]:
    found = list(_TERM.finditer(text))
    for match in found:
        sign, phrase, word = match.groups()
        if word is None:
            yield Term(phrase, is_excluded=bool(sign))
            continue
        if word.startswith("-") and len(word) > 1 and word[1] != "-":
            yield Term(word[1:], is_excluded=True)
        else:
            is_last = match is found[-1] and match.end() == len(text)
            tokens = _TOKEN.findall(word)
            yield Term(word, is_open=is_last and bool(tokens) and len(tokens[-1]) >= _PREFIX_FROM)


def _pattern(term: Term) -> str:
    """Return the pattern of the term's words in order, nothing but punctuation between them."""
    tokens = _TOKEN.findall(fold_case(term.text))
    patterns = []
    for token in tokens:
        letters = [letter for letter in token if not unicodedata.combining(letter)]
        patterns.append(_MARKS.join(map(re.escape, letters)) + _MARKS)
    if not patterns:
        return ""
    words = [not _SINGLE.match(token) for token in tokens]
    before = f"(?<!{_WORD})" if words[0] else ""
    after = f"(?!{_WORD})" if words[-1] and not term.is_open else ""
    pattern = patterns[0]
    for (left, right), each in zip(pairwise(words), patterns[1:], strict=True):
        pattern += (r"[\W_]+" if left and right else r"[\W_]*") + each
    return before + pattern + after


# The rows of one branch in ``state.db``.
#
# The index keeps no text of its own: all insertions and removals pass ``_index`` and ``_unindex``, and a removal
# needs exactly the text that was inserted.

PART_COLUMNS = (
    'id, message_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at,'
    " streamed, edited, removed"
)
PartRow = tuple[Any, ...]


class LoneText(NamedTuple):
    """A text that belongs to no message: a title, or what only the document has.

    ``origin`` is the same in every copy of it; ``created_at`` is in epoch ms.
    """

    origin: str
    role: str
    kind: str
    created_at: int
    text: str


class Totals(NamedTuple):
    """The sums over messages.

    Attributes:
        start: Creation time and id of the first message whose tokens count towards the model's context.
        tokens: These tokens, of visible answers, by column.
        changed: The latest update of a message, in epoch ms.
        spent: The sums of their requests.
    """

    start: tuple[int, str]
    tokens: Counter[str]
    changed: int
    spent: SpentByModel

    def with_replaced(self, old: "Totals", new: "Totals") -> "Totals":
        """Return the sums after a change of some messages, whose sums were ``old`` and are ``new`` now."""
        tokens = Counter(self.tokens)
        tokens.subtract(old.tokens)
        tokens.update(new.tokens)
        spent = {}
        for key in self.spent | new.spent:
            none = (0,) * len(self.spent.get(key) or new.spent[key])
            parts = zip(self.spent.get(key, none), old.spent.get(key, none), new.spent.get(key, none), strict=True)
            if any(counts := tuple(each - before + after for each, before, after in parts)):
                spent[key] = counts
        return Totals(self.start, tokens, max(self.changed, new.changed), spent)


class BranchTables:
    """The rows of the branch with this key, inside a transaction of the caller's."""

    def __init__(self, db: sqlite3.Connection, key: str) -> None:
        self._db = db
        self._key = key

    # -- reading -----------------------------------------------------------------------------------------------

    def message_of(self, part_id: str) -> str | None:
        """Return the id of the message that has a part."""
        query = "SELECT message_id FROM chat_parts WHERE session_id = ? AND id = ?"
        found = self._db.execute(query, (self._key, part_id)).fetchone()
        return found and str(found[0])

    def message(self, message_id: str) -> Message | None:
        """Return a message with its parts, as it was written."""
        query = "SELECT role, metadata_json, created_at, updated_at, removed FROM chat_messages"
        row = self._db.execute(f"{query} WHERE session_id = ? AND id = ?", (self._key, message_id)).fetchone()
        if row is None:
            return None
        role, data, created_at, updated_at, removed = row
        stamps = {"created_at": created_at, "updated_at": updated_at}
        message = Message({"id": message_id, "role": role, "metadata_json": json.loads(data), **stamps})
        message.hidden = bool(removed)
        message.parts = [_part(values) for values in self._parts(message_id).values()]
        return message

    def messages(self, since: float = -_NEVER) -> list[tuple[str, str, int]]:
        """Return of every message its id, the hashes of its pieces, and when it was created in epoch ms."""
        query = "SELECT id, pieces, created_at FROM chat_messages WHERE session_id = ? AND created_at >= ?"
        return self._db.execute(query, (self._key, since)).fetchall()

    def pieces(self, message_id: str, before: float) -> list[str]:
        """Return the hashes of the pieces of a message that was created ``before``; [] when there is none."""
        query = "SELECT pieces FROM chat_messages WHERE session_id = ? AND id = ? AND created_at < ?"
        found = self._db.execute(query, (self._key, message_id, before)).fetchone()
        return str(found[0]).split() if found else []

    # -- messages ----------------------------------------------------------------------------------------------

    def put_message(self, message: Message, pieces: str, *, is_new: bool) -> None:
        """Write a message with its parts; of existing rows only what changed.

        Args:
            message: The message.
            pieces: The hashes of the texts that the document should show of it.
            is_new: Whether it cannot have rows yet.
        """
        data = _json(message.row.get("metadata_json", {}))
        values = (message.role, data, *_times(message.row), int(message.hidden), pieces)
        self._db.execute(_PUT_MESSAGE, (self._key, message.id, *values))
        parts = {} if is_new else self._parts(message.id)
        indexed = {} if is_new else self._indexed_texts(message.id, parts)
        for part in message.parts:
            row = _row(part)
            if parts.pop(part.id, None) != row:
                self._db.execute(_PUT_PART, (self._key, *row))
            self._put_part_text(message, part, row, indexed.pop(part.id, None))
        for part_id in parts:
            self._db.execute("DELETE FROM chat_parts WHERE session_id = ? AND id = ?", (self._key, part_id))
        for number, body in indexed.values():
            self._unindex(number, body)
        put_requests(self._db, self._key, message, is_new=is_new)

    def remove_message(self, message_id: str) -> None:
        """Remove a message and its parts."""
        for number, body in self._indexed_texts(message_id, self._parts(message_id)).values():
            self._unindex(number, body)
        self._db.execute("DELETE FROM chat_messages WHERE session_id = ? AND id = ?", (self._key, message_id))

    def _put_part_text(self, message: Message, part: Part, row: PartRow, old: tuple[int, str] | None) -> None:
        kind, text = part_text(part.type, part.data, *row[9:11])
        text = writable(text)
        hidden = int(part.hidden or message.is_hidden)
        created_at = part.row.get("created_at") or message.row.get("created_at") or 0
        if old is not None and old[1] == text:
            query = "UPDATE texts SET role = ?, kind = ?, hidden = ?, created_at = ? WHERE id = ?"
            self._db.execute(query, (message.role, kind, hidden, created_at, old[0]))
            return
        if old is not None:
            self._unindex(*old)
        if text:
            self._index((message.id, part.id, message.id, message.role, kind, hidden, created_at, None), text)

    def _parts(self, message_id: str) -> dict[str, PartRow]:
        query = f'SELECT {PART_COLUMNS} FROM chat_parts WHERE session_id = ? AND message_id = ? ORDER BY "index", id'
        return {row[0]: row for row in self._db.execute(query, (self._key, message_id))}

    def _indexed_texts(self, message_id: str, parts: Mapping[str, PartRow]) -> dict[str, tuple[int, str]]:
        """Return the searchable parts: their numbers in the index, and their texts."""
        query = "SELECT part_id, id FROM texts WHERE session_id = ? AND message_id = ?"
        numbers = self._db.execute(query, (self._key, message_id))
        return {id: (number, stored_text(parts[id])) for id, number in numbers if id in parts}

    # -- texts of no message -----------------------------------------------------------------------------------

    def put_lone(self, wanted: Counter[LoneText], *, is_new: bool) -> None:
        """Replace the texts that belong to no message; ``is_new``: there cannot be any yet."""
        # Times change with every save; the texts, which are expensive to index, hardly ever.
        dated = {text._replace(created_at=0): text for text in wanted}
        missing = Counter({text._replace(created_at=0): count for text, count in wanted.items()})
        for number, *values in [] if is_new else self._lone():
            known = LoneText(*values)
            entry = known._replace(created_at=0)
            if not missing[entry]:
                self._unindex(number, known.text)
                continue
            missing[entry] -= 1
            if known != dated[entry]:
                query = "UPDATE texts SET created_at = ? WHERE id = ?"
                self._db.execute(query, (dated[entry].created_at, number))
        for entry in missing.elements():
            origin, role, kind, created_at, text = dated[entry]
            self._index((None, None, origin, role, kind, 0, created_at, text), text)

    def _lone(self) -> list[tuple[Any, ...]]:
        query = "SELECT id, origin, role, kind, created_at, text FROM texts WHERE session_id = ?"
        return self._db.execute(f"{query} AND message_id IS NULL", (self._key,)).fetchall()

    # -- the branch --------------------------------------------------------------------------------------------

    def totals(self, ids: Collection[str] | None = None, start: tuple[int, str] | None = None) -> "Totals":
        """Return the sums over some or all messages.

        Args:
            ids: The ids of the messages, none of them a compaction; None means all.
            start: Creation time and id from which on tokens count towards the context; None finds it.
        """
        summary = 0
        if start is None:
            start, summary = self._start()
        some, given = ("", []) if ids is None else (f" AND {{}} IN ({', '.join('?' * len(ids))})", [*ids])
        if ids is None:
            usage = self._db.execute(_USAGE + _NO_MARKER, (self._key, *start, self._key)).fetchone()
        else:
            usage = self._db.execute(_USAGE + some.format("id"), (self._key, *start, *given)).fetchone()
        query = f"SELECT coalesce(max(updated_at), 0) FROM chat_messages WHERE session_id = ?{some.format('id')}"
        (changed,) = self._db.execute(query, (self._key, *given)).fetchone()
        tokens = Counter(dict(zip(_TOKENS, usage, strict=True)))
        tokens["prompt_tokens"] += summary
        return Totals(start, tokens, changed, request_sums(self._db, self._key, some.format("message_id"), given))

    def has_compaction(self, ids: Collection[str]) -> bool:
        """Return whether any of these messages is a compaction."""
        query = (
            "SELECT 1 FROM chat_parts INDEXED BY chat_parts_message WHERE session_id = ? AND type = 'data-compaction'"
        )
        some = f" AND message_id IN ({', '.join('?' * len(ids))})"
        return self._db.execute(query + some, (self._key, *ids)).fetchone() is not None

    def put_session(self, facts: Mapping[str, Any], totals: "Totals") -> None:
        """Write the branch's row: ``facts`` by column, and the sums over its messages."""
        model = self._db.execute(_MODEL, (self._key,)).fetchone()
        served = served_by({"metadata_json": json.loads(model[0])} if model else {})
        tokens = {name: totals.tokens[name] for name in _TOKENS}
        row = dict(facts) | tokens
        row |= {
            "updated_at": max(facts["updated_at"], totals.changed),
            "total_tokens": sum(tokens.values()),
            "spent_json": json.dumps([[*key, *counts] for key, counts in sorted(totals.spent.items())]),
            "model_json": _json({"provider_id": served.provider or None, "model_id": served.model} if model else {}),
        }
        names, places = ", ".join(row), ", ".join(f":{name}" for name in row)
        changes = ", ".join(f"{name} = excluded.{name}" for name in row)
        query = f"INSERT INTO chat_sessions ({names}) VALUES ({places}) ON CONFLICT (id) DO UPDATE SET {changes}"
        self._db.execute(query, row)

    def _start(self) -> tuple[tuple[int, str], int]:
        """Return the first message whose tokens count towards the context, and the tokens of the summary before."""
        if (found := self._db.execute(_MARKER, (self._key,)).fetchone()) is None:
            return (0, ""), 0
        *after, tail, tokens = found
        query = "SELECT created_at, id FROM chat_messages WHERE session_id = ? AND id = ?"
        start = self._db.execute(query, (self._key, tail)).fetchone() or tuple(after)
        return start, tokens if isinstance(tokens, int) else 0

    def remove(self) -> None:
        """Remove all rows of the branch."""
        for message_id, _, _ in self.messages():
            self.remove_message(message_id)
        for number, *_, body in self._lone():
            self._unindex(number, body)
        self._db.execute("DELETE FROM chat_sessions WHERE id = ?", (self._key,))

    # -- the index ---------------------------------------------------------------------------------------------

    def _index(self, entry: tuple[Any, ...], text: str) -> None:
        number = self._db.execute(_PUT_TEXT, (self._key, *entry)).lastrowid
        self._db.execute("INSERT INTO texts_index (rowid, text) VALUES (?, ?)", (number, segment(text)))

    def _unindex(self, number: int, text: str) -> None:
        command = "INSERT INTO texts_index (texts_index, rowid, text) VALUES ('delete', ?, ?)"
        self._db.execute(command, (number, segment(text)))
        self._db.execute("DELETE FROM texts WHERE id = ?", (number,))


def stored_text(part: PartRow) -> str:
    """Return the text in the index for a part, from its columns (``PART_COLUMNS``)."""
    return writable(part_text(part[3], json.loads(part[4]), part[9], part[10])[1])


def session_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts in the log's ``session`` row (``{}`` if it has none), by column of ``chat_sessions``."""
    root = row.get("workspace_root")
    return {
        "agent": writable(str(row.get("agent") or "")),
        "workspace_root": writable(str(root)) if root else None,
        "parent_id": writable(str(row.get("parent_id") or "")) or None,
        "permissions_json": _json(row.get("permissions_json", [])),
        "metadata_json": _json(row.get("metadata_json", {})),
        "created_at": row.get("created_at") or 0,
        "updated_at": row.get("updated_at") or 0,
        "archived_at": row.get("archived_at"),
        "title": writable(str(row.get("title") or "")),
    }


def _part(values: PartRow) -> Part:
    id, message_id, index, type, data, call_id, state, created_at, updated_at, streamed, edited, removed = values
    row = {"id": id, "message_id": message_id, "index": index, "type": type, "data_json": json.loads(data)}
    row |= {"tool_call_id": call_id, "tool_state": state} if call_id is not None else {}
    part = Part(row | {"created_at": created_at, "updated_at": updated_at})
    part.deltas = [streamed] if streamed else None
    part.edited, part.hidden = edited, bool(removed)
    return part


def _row(part: Part) -> PartRow:
    row = part.row
    return (
        part.id,
        row["message_id"],
        row.get("index", 0),
        writable(part.type),
        _json(part.data),
        writable(row.get("tool_call_id") or "") or None,
        writable(row.get("tool_state") or "") or None,
        *_times(row),
        writable("".join(part.deltas or ())),
        None if part.edited is None else writable(part.edited),
        int(part.hidden),
    )


def _times(row: Mapping[str, Any]) -> tuple[int, int]:
    return row.get("created_at") or 0, row.get("updated_at") or 0


def _json(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:  # what Python takes for JSON and SQLite does not
        return _json(json.loads(json.dumps(value), parse_constant=lambda _: None))
    return text if writable(text) == text else json.dumps(value, separators=(",", ":"))


_PUT_MESSAGE = (  # not REPLACE, which would take the parts along
    "INSERT INTO chat_messages VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session_id, id) DO UPDATE SET"
    " role = excluded.role, metadata_json = excluded.metadata_json, created_at = excluded.created_at,"
    " updated_at = excluded.updated_at, removed = excluded.removed, pieces = excluded.pieces"
)
_PUT_PART = "INSERT OR REPLACE INTO chat_parts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_TEXT = (
    "INSERT INTO texts (session_id, message_id, part_id, origin, role, kind, hidden, created_at, text)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_TOKENS = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write")
_USAGE = (  # of what the model still sees; "+": by id, where that is given, and not by the time
    "SELECT "
    + ", ".join(
        f"CAST(total(json_extract(metadata_json, '$.usage.{name}')) AS INTEGER)"
        for name in ("input", "output", "reasoning", "cache_read", "cache_write")
    )
    + " FROM chat_messages WHERE session_id = ? AND role = 'assistant' AND NOT removed"
    + " AND json_extract(metadata_json, '$.hidden_at') IS NULL AND (+created_at, id) >= (?, ?)"
)
_NO_MARKER = " AND id NOT IN (SELECT message_id FROM chat_parts WHERE session_id = ? AND type = 'data-compaction')"
_MARKER = (  # the compaction that holds; one without a summary only prunes
    "SELECT m.created_at, m.id, json_extract(p.data_json, '$.tail_start_id'),"
    " json_extract(p.data_json, '$.summary_tokens') FROM chat_parts p"
    " JOIN chat_messages m ON m.session_id = p.session_id AND m.id = p.message_id"
    " WHERE p.session_id = ? AND p.type = 'data-compaction' AND NOT p.removed AND NOT m.removed"
    " AND json_extract(m.metadata_json, '$.hidden_at') IS NULL"
    " AND coalesce(json_extract(p.data_json, '$.summary'), '') <> '' ORDER BY m.created_at DESC, m.id DESC LIMIT 1"
)
_MODEL = (
    "SELECT metadata_json FROM chat_messages"
    " WHERE session_id = ? AND json_extract(metadata_json, '$.model') IS NOT NULL"
    " ORDER BY created_at DESC, id DESC LIMIT 1"
)


# Indexing one branch from its files.
#
# The log has the messages; the document has the user's edits and what the log lacks: a draft, a session of stock
# gptel, the text of a lost log. Only differences from the tables are written, so a turn costs what is new in it: the
# log is read from where the last reading ended, and of the document only hashes of its pieces are compared. If these
# show an edit that was not recorded, everything is read and aligned.

_ROLES: Mapping[PieceKind, tuple[str, str]] = {  # role and kind of text that only the document has
    "user": ("user", "text"),
    "response": ("assistant", "text"),
    "reasoning": ("assistant", "reasoning"),
    "tool": ("assistant", "tool"),
    "compaction": ("assistant", "compaction"),
}
_FEW = 100  # messages that changed at once
_SEEN = 20  # branches


class Stamps(NamedTuple):
    """The stamps of a branch's files, which change with them: mtime in ns, size and inode; "" if missing."""

    plan: str
    journal: str
    document: str


def stamps_of(branch_dir: str) -> Stamps:
    """Return the stamps of a branch's files now."""
    names = (paths.SCOPE_PLAN_FILE, paths.JOURNAL_FILE, paths.SESSION_FILE)
    return Stamps(*(_stamp(f"{branch_dir}/{name}") for name in names))


def mtime_ns(stamp: str) -> int:
    """Return the modification time in a stamp, 0 for a missing file."""
    return int(stamp.partition(":")[0] or 0)


class ComparisonState(NamedTuple):
    """The result of comparing a document with all messages, from which the next comparison continues.

    Attributes:
        stamps: The stamps of the files.
        origin: ``DocumentFile.origin`` of the document.
        end: Where the last role of the document begins, and the next comparison starts.
        spans: The roles before that.
        since: Messages created from then on are not in ``balance``: their text was not yet in the document.
        balance: How often the messages have each hash, minus how often it is before ``end``; no zeros.
        texts: The pieces that the document has more often than the messages, by hash.
        totals: The sums over the messages.
    """

    stamps: Stamps
    origin: object
    end: int
    spans: tuple[Span, ...]
    since: float
    balance: Mapping[str, int]
    texts: Mapping[str, DocumentPiece]
    totals: Totals

    def holds_for(self, known: Mapping[str, Any], document: Document, origin: object) -> bool:
        """Return whether the tables are unchanged since, and the document only grew."""
        count = len(self.spans)
        return (
            self.stamps == _stamps(known)
            and self.origin is origin
            and len(document.spans) > count
            and document.spans[count].start == self.end
            and document.spans[:count] == self.spans
        )


_log = logging.getLogger(__name__)
_IDS = ("id", "message_id", "part_id", "role")  # keys of rows that are stored as they are


@dataclass(slots=True)
class _Log:
    """The part of the log to write: all of it, or only the messages with new rows."""

    conversation: Conversation
    mark: Bookmark
    is_whole: bool


class _Indexing:
    """Brings the rows of a branch up to date, inside the caller's transaction.

    Args:
        tables: Its rows.
        ref: The branch.
        known: Its row of ``chat_sessions``, None for a new branch.
        stamps: The stamps of its files, taken before reading them.
        seen: The last comparison, if there was one.
    """

    def __init__(
        self,
        tables: BranchTables,
        ref: BranchRef,
        known: Mapping[str, Any] | None,
        stamps: Stamps,
        seen: ComparisonState | None,
    ) -> None:
        self._tables = tables
        self._ref = ref
        self._known = known
        self._stamps = stamps
        self._journal = paths.journal_file(ref.branch_dir)
        self._document, self._origin = document_cache.glance(paths.session_file(ref.branch_dir))
        holds = seen is not None and known is not None and seen.holds_for(known, self._document, self._origin)
        self._seen = seen if holds else None
        self._balance: Mapping[str, int] = {}  # as in ``ComparisonState``, like the next
        self._texts: Mapping[str, DocumentPiece] = {}
        self._edited = False  # the document has edits that the log does not

    def run(self, key: str, seen: dict[str, ComparisonState]) -> int:
        """Write what changed, set ``seen`` to the new comparison, and return how many messages were examined.

        Raises:
            StoreError: A file cannot be read.
            sqlite3.Error: The database refused.
        """
        log = self._read_appended() or self._read_everything()
        lone, lacks = self._compare(log)
        if lacks and not log.is_whole:
            log = self._read_everything()
            lone, lacks = self._compare(log)
        if lacks:
            self._reconcile(log)
            lone, _ = self._compare(log)
        facts = self._facts(log)
        totals = self._write_messages(log)
        self._write_lone(lone, facts)
        self._tables.put_session({"id": key, **facts}, totals)
        if self._origin is not None and self._document.spans and not facts["reread"]:
            spans = self._document.spans
            seen[key] = ComparisonState(
                stamps=self._stamps,
                origin=self._origin,
                end=spans[-1].start,
                spans=spans[:-1],
                since=self._awaited_since(log),
                balance=self._balance,
                texts=self._texts,
                totals=totals,
            )
            if len(seen) > _SEEN:
                del seen[next(iter(seen))]
        return len(log.conversation.messages)

    # -- the log -----------------------------------------------------------------------------------------------

    def _read_appended(self) -> _Log | None:
        """Return the rows that were appended to the log; None if it must be read from the beginning."""
        if self._known is None or self._known["reread"]:
            return None
        read = read_from(self._journal, Bookmark(*json.loads(self._known["bookmark_json"])))
        if read is None:
            return None
        rows, mark = self._storable_rows(read[0]), read[1]
        conversation = self._recall_messages(rows)
        for row in rows:
            conversation.apply(row)
        return _Log(conversation, mark, is_whole=False)

    def _read_everything(self) -> _Log:
        rows, mark = read_from(self._journal, Bookmark()) or ([], Bookmark())
        return _Log(Conversation(self._storable_rows(rows)), mark, is_whole=True)

    def _storable_rows(self, rows: list[Row]) -> list[Row]:
        """Return ``rows`` without those whose ids have a lone surrogate, which the database cannot hold."""
        kept = []
        for row in rows:
            ids = "".join(str(row.data.get(key, "")) for key in _IDS)
            if writable(ids) == ids:
                kept.append(row)
        if left := len(rows) - len(kept):
            _log.warning("%s: %d rows are not indexed, since UTF-8 has no form of their ids", self._journal, left)
        return kept

    def _recall_messages(self, rows: Iterable[Row]) -> Conversation:
        """Return a conversation of the messages that ``rows`` change, as the tables have them."""
        conversation = Conversation()
        if (run := json.loads((self._known or {}).get("run_json", "null"))) is not None:
            conversation.runs[run["id"]] = RunState(run, 0, 0)
        for message_id in dict.fromkeys(filter(None, map(self._message_of, rows))):
            if (message := self._tables.message(message_id)) is not None:
                conversation.messages[message_id] = message
                conversation.parts.update((part.id, part) for part in message.parts)
        return conversation

    def _message_of(self, row: Row) -> str | None:
        match row.type:
            case "message":
                return str(row.data["id"])
            case "part":
                return str(row.data["message_id"])
            case "edit" | "delta":
                return row.data.get("message_id") or self._tables.message_of(row.data.get("part_id", ""))
        return None

    # -- the document ------------------------------------------------------------------------------------------

    def _compare(self, log: _Log) -> tuple[list[DocumentPiece], bool]:
        """Return the texts that only the document has, and whether it lacks a text of the log."""
        seen = None if log.is_whole else self._seen
        due, allowed = self._pieces(log, seen)
        is_growing = bool(allowed)
        spans = self._document.spans
        pieces = found_pieces(self._document, first=None if seen is None else len(seen.spans))
        marks = [_hash(piece.key[0], piece.key[2]) for piece in pieces]
        texts = dict(seen.texts if seen is not None else {}) | dict(zip(marks, pieces, strict=True))
        middle = bisect_left(pieces, spans[-1].start, key=lambda piece: piece.start) if spans else 0
        due.subtract(marks[:middle])
        self._balance = {mark: count for mark, count in due.items() if count}
        due.subtract(marks[middle:])
        lone = []
        for mark, count in due.items():
            if count < 0 and mark not in texts:  # what changed above is looked at again
                self._seen = None
                return self._compare(log)
            # Else it may be the beginning of a recorded answer.
            if count < 0 and (texts[mark].key[0] == "user" or not is_growing):
                lone += [texts[mark]] * (-count - min(-count, allowed[mark]))
        self._texts = {mark: texts[mark] for mark, count in self._balance.items() if count < 0}
        return lone, any(count > 0 for count in due.values())

    def _pieces(self, log: _Log, seen: ComparisonState | None) -> tuple[Counter[str], Counter[str]]:
        """Return the texts that the document must show, and those of a run that may not be in it yet.

        Texts before the place where the comparison starts are left out.
        """
        due, allowed = Counter[str](seen.balance if seen is not None else {}), Counter[str]()
        since = self._awaited_since(log)
        own = _pieces_by_message(log.conversation)
        for id, hashes in own.items():
            if seen is not None:
                due.subtract(self._tables.pieces(id, seen.since))
            (allowed if _creation_time(log, id) >= since else due).update(hashes)
        if log.is_whole:
            return due, allowed
        for id, pieces, created_at in self._tables.messages(min(since, seen.since) if seen is not None else -_NEVER):
            if id not in own:
                if seen is not None and created_at < seen.since:
                    due.subtract(pieces.split())
                (allowed if created_at >= since else due).update(pieces.split())
        return due, allowed

    def _awaited_since(self, log: _Log) -> float:
        """Return the creation time from which on messages may not be in the document yet."""
        run = log.conversation.last_run
        if run is None or run.is_kept:
            return _NEVER
        prompt = str(run.data.get("message_id"))
        if prompt in log.conversation.messages:
            return _creation_time(log, prompt)
        message = None if log.is_whole else self._tables.message(prompt)
        return _NEVER if message is None else float(message.row["created_at"])

    def _reconcile(self, log: _Log) -> None:
        """Apply the edits in the document to the conversation."""
        conversation, since = log.conversation, self._awaited_since(log)
        aligned = align(self._document, conversation)
        for edit in aligned.edits:
            part = conversation.parts.get(edit.get("part_id", ""))
            owner = part.row["message_id"] if part else edit.get("message_id", "")
            if _creation_time(log, owner) < since:
                self._edited = True
                conversation.apply(Row(conversation.last_seq, "edit", edit))
        if aligned.spans is not None:
            self._document = replace(self._document, spans=aligned.spans)

    # -- writing -----------------------------------------------------------------------------------------------

    def _write_messages(self, log: _Log) -> Totals:
        """Write messages; return the sums over all of them."""
        messages = log.conversation.messages
        seen = self._seen
        if log.is_whole or seen is None or len(messages) > _FEW or self._tables.has_compaction(messages):
            seen = None
        old = self._tables.totals(messages, seen.totals.start) if seen is not None else None
        if log.is_whole and self._known is not None:
            for id, _, _ in self._tables.messages():
                if id not in messages:
                    self._tables.remove_message(id)
        pieces = _pieces_by_message(log.conversation)
        for message in messages.values():
            self._tables.put_message(message, " ".join(pieces[message.id]), is_new=self._known is None)
        if seen is None or old is None or self._tables.has_compaction(messages):
            return self._tables.totals()
        return seen.totals.with_replaced(old, self._tables.totals(messages, seen.totals.start))

    def _write_lone(self, lone: Iterable[DocumentPiece], facts: Mapping[str, Any]) -> None:
        """Write the title, and the texts that only the document has."""
        id, written = self._ref.session_id, mtime_ns(self._stamps.document) // 1_000_000
        title = writable(f"{facts['title']}\n{id}" if facts["title"] else id)
        wanted = Counter([LoneText(f"title {id}", "session", "title", facts["created_at"], title)])
        for piece in lone:
            role, kind = _ROLES[piece.key[0]]
            if text := writable(piece.key[2].strip()):
                wanted[LoneText(f"{id} {_hash(role, text)}", role, kind, written, text)] += 1
        self._tables.put_lone(wanted, is_new=self._known is None)

    def _facts(self, log: _Log) -> dict[str, Any]:
        """Return the branch's row of ``chat_sessions`` without the sums over its messages."""
        facts = dict(self._known or {})
        row, run = log.conversation.session, log.conversation.last_run
        if row or log.is_whole:
            facts |= session_facts(row)
        if self._known is None or self._known["plan_stamp"] != self._stamps.plan:
            plan = metadata.read_session_metadata(self._ref.branch_dir) or {}
            facts |= {"preset": plan.get("preset"), "created": plan.get("created")}
        written = mtime_ns(self._stamps.document) // 1_000_000
        return facts | {
            "session_id": self._ref.session_id,
            "branch_name": self._ref.branch_name,
            "is_agent": int(self._ref.is_agent),
            "agent": facts["agent"] or facts["preset"] or "",
            "created_at": facts["created_at"] or written,
            "updated_at": facts["updated_at"] or written,
            "plan_stamp": self._stamps.plan,
            "journal_stamp": self._stamps.journal,
            "document_stamp": self._stamps.document,
            "bookmark_json": json.dumps(log.mark),
            "run_json": json.dumps(run.data if run else None),
            # Without a session row the times above are the document's, which change.
            "reread": int(self._edited or (log.is_whole and not row)),
        }


def _creation_time(log: _Log, message_id: str) -> float:
    message = log.conversation.messages.get(message_id)
    return float(message.row.get("created_at") or 0) if message else 0.0


def _pieces_by_message(conversation: Conversation) -> dict[str, list[str]]:
    """Return the hashes of the texts that the document should show of each message."""
    pieces: dict[str, list[str]] = {id: [] for id in conversation.messages}
    for piece in recorded_pieces(conversation):
        if not piece.is_hidden:
            pieces[piece.message.id].append(_hash(piece.key[0], piece.key[2]))
    return pieces


def _hash(kind: str, text: str) -> str:
    return hashlib.blake2b(f"{kind}\0{text}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _stamp(path: str) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116 - three for every branch there is
    except OSError:
        return ""
    return f"{found.st_mtime_ns}:{found.st_size}:{found.st_ino}"


class Facts(NamedTuple):
    """The facts about a branch for a list of sessions, from the tables."""

    stamps: Stamps
    title: str
    archived_at: int | None  # epoch ms
    preset: str | None
    created: str | None  # as in the metadata


class Projection:
    """The tables of one sessions root; methods raise ``StoreError`` when the database or a file cannot be used.

    The branches' keys are relative to ``root``.
    """

    def __init__(self, state: State, root: Path) -> None:
        self._state = state
        self._root = f"{root.resolve()}/"
        self._seen: dict[str, ComparisonState] = {}  # the one indexed last behind

    def key(self, directory: Path) -> str:
        """Return the ``id`` of the branch in ``directory``: its path relative to the root, or absolute."""
        return str(directory).removeprefix(self._root)

    def directory(self, key: str) -> Path:
        """Return the directory of the branch with this ``id``."""
        return Path(self.place(key))

    def place(self, key: str) -> str:
        """Return the directory of the branch with this ``id``, as text."""
        return key if key.startswith("/") else self._root + key

    def stamps(self) -> dict[str, Stamps]:
        """Return the branches in the tables by key, with the stamps of their indexed files."""
        query = "SELECT id, plan_stamp, journal_stamp, document_stamp FROM chat_sessions"
        with self._state.reading() as db:
            return {key: Stamps(*stamps) for key, *stamps in db.execute(query)}

    def facts(self) -> dict[str, Facts]:
        """Return the facts for a list of sessions, by key."""
        query = "SELECT id, plan_stamp, journal_stamp, document_stamp, title, archived_at, preset, created"
        with self._state.reading() as db:
            rows = db.execute(f"{query} FROM chat_sessions")
            return {key: Facts(Stamps(a, b, c), *rest) for key, a, b, c, *rest in rows}

    def update(self, ref: BranchRef) -> int:
        """Index what changed in the files of a branch; return the number of messages concerned."""
        key, stamps = self.key(ref.branch_dir), stamps_of(ref.key)
        with self._state.writing() as db:
            known = _known(db, key)
            if known is not None and _stamps(known) == stamps:
                return 0
            seen = self._seen.pop(key, None)
            return _Indexing(BranchTables(db, key), ref, known, stamps, seen).run(key, self._seen)

    def drop(self, keys: Iterable[str]) -> None:
        """Remove branches that are gone."""
        for key in keys:
            with self._state.writing() as db:
                BranchTables(db, key).remove()

    def clear(self) -> None:
        """Remove all branches."""
        with self._state.writing() as db:
            db.execute("INSERT INTO texts_index (texts_index) VALUES ('delete-all')")
            for table in ("texts", "requests", "chat_parts", "chat_messages", "chat_sessions"):
                db.execute(f"DELETE FROM {table}")

    def totals(self) -> tuple[int, int]:
        """Return the numbers of branches and messages."""
        with self._state.reading() as db:
            branches, messages = db.execute(
                "SELECT (SELECT count(*) FROM chat_sessions), (SELECT count(*) FROM chat_messages)"
            ).fetchone()
            return branches, messages


def _known(db: sqlite3.Connection, key: str) -> dict[str, Any] | None:
    cursor = db.execute("SELECT * FROM chat_sessions WHERE id = ?", (key,))
    row = cursor.fetchone()
    return None if row is None else dict(zip((column[0] for column in cursor.description), row, strict=True))


def _stamps(known: Mapping[str, Any]) -> Stamps:
    return Stamps(known["plan_stamp"], known["journal_stamp"], known["document_stamp"])


# Full-text search: from a query to hits, best first.
#
# A hit is a message (its best part), a title, or a text that only a document has. The same message in several
# branches, or in a copy of a session, is one hit: in the active branch, if that has it.

_FIRST = 256  # rows of the index looked at first; eight times as many whenever they were too few
_TEXT_LIMIT = 1_000_000  # characters of a text that are searched for a preview


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where to search.

    Attributes:
        archived: Whether to search archived sessions, too.
        hidden: Whether to search what the user removed from the conversation, too.
        within: Search only branches and agents whose key is this or begins with it and a slash; "" is all.
    """

    archived: bool = False
    hidden: bool = False
    within: str = ""


class HitFacts(TypedDict):
    """Where something was found."""

    session_id: str
    branch_name: str
    branch: str
    branch_dir: str
    file: str
    agent: bool
    title: str | None
    message_id: str | None  # not of a title, nor of text that only the document has
    part_id: str | None
    role: str
    created_at: int | None  # epoch ms
    hidden: bool
    preview: str
    matches: Sequence[Sequence[int]]  # in the preview: pairs of offsets from 0
    copies: int  # how many other branches have the message too


class HitRow(HitFacts):
    """A place where something was found."""

    kind: str  # text, reasoning, tool, title…


def search(
    state: State, projection: Projection, query: Query, *, limit: int, scope: Scope
) -> tuple[list[HitRow], bool]:
    """Return up to ``limit`` hits, and whether there are more.

    Raises:
        StoreError: The database cannot be used.
    """
    with state.reading() as db:
        groups, more = _groups(db, query, limit, scope)
        finder = query.finder()
        return [_hit(db, projection, rows, finder, scope) for rows in groups], more


def _groups(
    db: sqlite3.Connection, query: Query, limit: int, scope: Scope
) -> tuple[list[list[dict[str, Any]]], bool]:
    """Return the matching rows, grouped by origin, best origin first."""
    archived_ids = "SELECT id FROM chat_sessions WHERE archived_at IS NOT NULL"
    archived: Set[str] = frozenset() if scope.archived else {key for (key,) in db.execute(archived_ids)}
    count = _FIRST
    while True:
        groups: dict[str, list[dict[str, Any]]] = {}
        cursor = db.execute(_FOUND, (query.expression, count))
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
        for row in rows:
            if (
                (scope.hidden or not row["hidden"])
                and (not scope.within or f"{row['key']}/".startswith(f"{scope.within}/"))
                and (not archived or archived.isdisjoint(_lineage(row["key"])))
            ):
                groups.setdefault(row["origin"], []).append(row)
        if len(groups) > limit or len(rows) < count:
            return list(groups.values())[:limit], len(groups) > limit
        count *= 8


def _lineage(key: str) -> Iterator[str]:
    """Yield the keys of a branch or agent and of its ancestors, which are archived together."""
    while True:
        yield key
        key, agents, _ = key.rpartition(f"/{paths.AGENTS_DIR}/")
        if not agents:
            return


def _hit(
    db: sqlite3.Connection, projection: Projection, rows: list[dict[str, Any]], finder: Finder, scope: Scope
) -> HitRow:
    row = _best_copy(projection, rows)
    preview, matches = finder.preview(_text(db, row)[:_TEXT_LIMIT])
    place = projection.place(row["key"])
    return {
        "session_id": row["session_id"],
        "branch_name": row["branch_name"],
        "branch": place,
        "branch_dir": place,
        "file": f"{place}/{paths.SESSION_FILE}",
        "agent": bool(row["is_agent"]),
        "title": row["title"] or None,
        "message_id": row["message_id"],
        "part_id": row["part_id"],
        "role": row["role"],
        "created_at": row["created_at"],
        "hidden": bool(row["hidden"]),
        "preview": preview,
        "matches": matches,
        "copies": _copies(db, row, scope),
        "kind": row["kind"],
    }


def _best_copy(projection: Projection, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the copy of a text that is in the active branch, else the first; ``rows`` have the best part first."""
    same = [row for row in rows if row["part_id"] == rows[0]["part_id"]]
    return next((row for row in same if len(same) > 1 and _is_active(projection, row)), rows[0])


def _is_active(projection: Projection, row: Mapping[str, Any]) -> bool:
    place = projection.directory(row["key"])
    while place.parent.name == paths.AGENTS_DIR:
        place = place.parent.parent
    return paths.real(paths.current_link(place.parent.parent)) == place


def _text(db: sqlite3.Connection, row: Mapping[str, Any]) -> str:
    if row["text"] is not None:
        return str(row["text"])
    query = f"SELECT {PART_COLUMNS} FROM chat_parts WHERE session_id = ? AND id = ?"
    part = db.execute(query, (row["key"], row["part_id"])).fetchone()
    return "" if part is None else stored_text(part)


def _copies(db: sqlite3.Connection, row: Mapping[str, Any], scope: Scope) -> int:
    query = "SELECT count(DISTINCT session_id) - 1 FROM texts WHERE origin = ? AND hidden <= ?"
    (copies,) = db.execute(query, (row["origin"], int(scope.hidden))).fetchone()
    return max(0, int(copies))


# The best rows are chosen by the index alone; then their other columns are read.
_FOUND = """
    SELECT texts.session_id AS key, message_id, part_id, origin, role, kind, hidden, texts.created_at, text,
           chat_sessions.session_id, branch_name, is_agent, title
    FROM (SELECT rowid AS number, rank AS score FROM texts_index WHERE texts_index MATCH ?
          ORDER BY rank, rowid DESC LIMIT ?)
    JOIN texts ON texts.id = number
    JOIN chat_sessions ON chat_sessions.id = texts.session_id
    ORDER BY round(score, 3), texts.created_at DESC, number DESC
"""
