"""Which piece of a document is which of the record.

Monotone first (longest common subsequence, so a repeated "OK" stays where it was), then pieces that moved, then what
was edited, by likeness. Compares texts alone; what a difference means is decided in ``alignment``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence

from pyagentd.store.conversation import Conversation
from pyagentd.store.pieces import Found, Key, Recorded, fragments, key_of, original_text
from pyagentd.store.recorded import Message
from pyagentd.store.render import RUN_OPEN

_MANY = 50  # equal pieces beyond which only the nearest are compared
_BLOCKS = ("compaction", "reasoning")  # what is shown with the role ``ignore``
_NEAR = 50  # recorded pieces that are compared with one that was edited


def restored_ids(
    conversation: Conversation, recorded: Sequence[Recorded], found: Sequence[Found], links: Sequence[int]
) -> set[str]:
    """Return the ids of messages and parts whose edit the user took back: what was there before it is there again."""
    linked = set(links)
    own: dict[str, list[int]] = defaultdict(list)
    for number, piece in enumerate(recorded):
        if piece.part is None and piece.message.is_edited:
            own[piece.message.id].append(number)
    rows = _Rows(recorded, found, links)
    ids: set[str] = set()
    for message in conversation.messages.values():
        if message.role == "user" and message.is_edited:
            texts, numbers = _texts(message.recorded_text), own[message.id]
            is_there = len(texts) <= len(numbers) and all(number in linked for number in numbers)
            if not is_there and rows.has(texts, message):
                ids.add(message.id)
    free = Counter(piece.key for piece, number in zip(found, links, strict=True) if number < 0)
    for number, (_, _, part, *_) in enumerate(recorded):
        if part is not None and part.edited is not None and number not in linked:
            key = key_of(part, original_text(part))
            if free[key]:
                free[key] -= 1
                ids.add(part.id)
    return ids


class _Rows:
    """Finds fragments that follow each other and are nobody's, or of one message."""

    def __init__(self, recorded: Sequence[Recorded], found: Sequence[Found], links: Sequence[int]) -> None:
        self._recorded, self._found, self._links = recorded, found, links
        self._places: dict[Key, list[int]] = defaultdict(list)
        for index, piece in enumerate(found):
            self._places[piece.key].append(index)

    def has(self, texts: Sequence[str], message: Message) -> bool:
        keys: list[Key] = [("user", "", text) for text in texts]
        return bool(keys) and any(
            self._is_row(range(start, start + len(keys)), keys, message) for start in self._places[keys[0]]
        )

    def _is_row(self, row: range, keys: Sequence[Key], message: Message) -> bool:
        return row.stop <= len(self._found) and all(
            self._found[index].key == key
            and (self._links[index] < 0 or self._recorded[self._links[index]].message is message)
            for index, key in zip(row, keys, strict=True)
        )


def with_known_ids(found: list[Found], recorded: Sequence[Recorded]) -> list[Found]:
    """Return ``found`` with recorded ids for tool pieces that are as recorded but for their id.

    Stock gptel gives one id to all calls of a tool that were made at once.
    """
    known = [piece.key for piece in recorded if piece.key[0] == "tool"]
    exact = set(known).intersection(piece.key for piece in found)
    if all(piece.key in exact for piece in found if piece.key[0] == "tool"):
        return found
    free: dict[str, list[Key]] = defaultdict(list)
    for key in known:
        if key not in exact:
            free[key[2]].append(key)
    return [
        piece._replace(key=free[piece.key[2]].pop(0))
        if piece.key[0] == "tool" and piece.key not in exact and free.get(piece.key[2])
        else piece
        for piece in found
    ]


def with_known_blocks(found: list[Found], recorded: Sequence[Recorded]) -> list[Found]:
    """Return ``found`` with blocks cut where recorded ones end: hidden turns behind them have their role."""
    known = {piece.key for piece in recorded if piece.key[0] in _BLOCKS}
    return [_ending(piece, known) if piece.key[0] in _BLOCKS and piece.key not in known else piece for piece in found]


def _ending(piece: Found, known: Collection[Key]) -> Found:
    kind, id, text = piece.key
    starts = [key for key in known if key[0] == kind and text.startswith(key[2] + RUN_OPEN)]
    if not starts:
        return piece
    longest = max(len(key[2]) for key in starts)
    return piece._replace(key=(kind, id, text[:longest]), end=piece.start + longest)


def joined_keys(body: str, recorded: Sequence[Recorded], found: Sequence[Found]) -> tuple[list[Key], list[Key]]:
    """Return keys for ``match`` that tell a fragment within a message from one that begins a message.

    Both are equal where the text between fragments is that of the recorded message.
    """
    left = [piece.key if not piece.joint else ("user", piece.joint, piece.key[2]) for piece in recorded]
    joints = {key for key, piece in zip(left, recorded, strict=True) if piece.joint}
    right = [piece.key for piece in found]
    if joints:
        for index in range(1, len(found)):
            before, piece = found[index - 1], found[index]
            key: Key = ("user", body[before.end : piece.start], piece.key[2])
            if piece.key[0] == "user" and before.region == piece.region and key in joints:
                right[index] = key
    return left, right


def match(recorded: Sequence[Key], found: Sequence[Key]) -> list[int]:
    """Return for every found piece the number of the recorded piece it is, or -1."""
    links = [-1] * len(found)
    shorter = min(len(recorded), len(found))
    head = 0
    while head < shorter and recorded[head] == found[head]:
        links[head] = head
        head += 1
    tail = 0
    while tail < shorter - head and recorded[-1 - tail] == found[-1 - tail]:
        links[-1 - tail] = len(recorded) - 1 - tail
        tail += 1
    middle = common(recorded[head : len(recorded) - tail], found[head : len(found) - tail])
    for left, right in middle:
        links[head + right] = head + left
    return links


def common(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the pairs of a longest common subsequence (Hunt and Szymanski's way: few pieces are equal)."""
    if not left or not right:
        return []
    places: dict[Hashable, list[int]] = defaultdict(list)
    for index, key in enumerate(right):
        places[key].append(index)
    ends: list[int] = []  # ends[k]: smallest place that ends a common subsequence of length k + 1
    chains: list[tuple[int, int, int]] = []  # left, right, the link before
    tops: list[int] = []  # the link that ends ends[k]
    for index, key in enumerate(left):
        for place in _nearest(places.get(key, []), index):
            length = bisect_left(ends, place)
            chains.append((index, place, tops[length - 1] if length else -1))
            ends[length : length + 1] = [place]
            tops[length : length + 1] = [len(chains) - 1]
    pairs: list[tuple[int, int]] = []
    link = tops[-1] if tops else -1
    while link >= 0:
        index, place, link = chains[link]
        pairs.append((index, place))
    return pairs[::-1]


def link_moved(recorded: Sequence[Recorded], found: Sequence[Found], links: list[int], last: int) -> set[int]:
    """Link what the first match left over on both sides and is equal; user text only before piece ``last``.

    Returns the numbers of the found pieces it linked.

    A prompt sent from the middle of a document is younger than what stands below it, so order alone misses it.
    """
    taken, moved = set(links), set[int]()
    left: dict[Key, list[int]] = defaultdict(list)
    for number, piece in enumerate(recorded):
        if number not in taken and not piece.is_hidden:
            left[piece.key].append(number)
    for index, (key, *_) in enumerate(found if left else ()):
        if links[index] < 0 and left.get(key) and (key[0] != "user" or index < last):
            links[index] = left[key].pop(0)
            moved.add(index)
    return moved


def _nearest(places: list[int], index: int) -> list[int]:
    """Return ``places`` from last to first, of very many only those around ``index``."""
    if len(places) > _MANY:
        middle = bisect_left(places, index)
        places = places[max(0, middle - _MANY // 2) : middle + _MANY // 2]
    return places[::-1]


def _texts(text: str) -> list[str]:
    return [text[a:b] for a, b in fragments(text)]


def pair(
    gap: Iterable[int], free: Sequence[int], found: Sequence[Found], recorded: Sequence[Recorded], sources: list[int]
) -> None:
    """Give every piece in a gap the free recorded piece of its kind that is most like it, in order."""
    kinds: dict[str, list[int]] = defaultdict(list)
    for number in free:
        kinds[recorded[number].key[0]].append(number)
    low = 0
    for index in gap:
        key = found[index].key
        same = kinds[key[0]]
        first = bisect_left(same, low)
        if first < len(same):
            near = same[first : first + _NEAR]
            sources[index] = max(near, key=lambda number: _likeness(recorded[number].key, key))
            low = sources[index] + 1


def _likeness(one: tuple[str, str, str], other: tuple[str, str, str]) -> tuple[bool, int]:
    """Compare call ids, then how far the texts agree from both ends."""
    left, right = one[2], other[2]
    length = min(len(left), len(right), 2000)
    head = next((i for i in range(length) if left[i] != right[i]), length)
    tail = next((i for i in range(1, length - head + 1) if left[-i] != right[-i]), length - head + 1)
    return bool(one[1]) and one[1] == other[1], head + tail
