"""Charts as data, and their drawing with block characters and as SVG; pure.

A chart is rows of bars on one scale. Each kind of bar has a character, a colour and a pattern, so that nothing
depends on colour alone, and the legend names it. Text has the colour of the surroundings (``currentColor``): one SVG
serves light and dark, Emacs and a browser. The same ``Chart`` is drawn in reports, on the command line and in
exported pages.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from html import escape
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

from pyagentd import words
from pyagentd.events import truncate
from pyagentd.store.conversation import Conversation, Message
from pyagentd.store.journal import served_by

Kind = Literal["model", "tool", "agent", "wait", "amount"]


class _Look(NamedTuple):
    word: str
    block: str
    colour: str
    pattern: str  # what is drawn over the colour


_STROKES = '<path d="M0,6 l6,-6 M-1,1 l2,-2 M5,7 l2,-2" stroke="#fff" stroke-opacity=".55" stroke-width="1.5"/>'
_DOTS = '<circle cx="3" cy="3" r="1.2" fill="#fff" fill-opacity=".6"/>'
_LINES = '<path d="M3,0 v6" stroke="#fff" stroke-opacity=".4" stroke-width="1.2"/>'
LOOKS: dict[Kind, _Look] = {
    "model": _Look("model", "█", "#3d7edb", ""),
    "tool": _Look("tools", "▓", "#d98a1f", _LINES),
    "agent": _Look("agents", "▒", "#9061c9", _DOTS),
    "wait": _Look("waiting for you", "░", "#8a919c", _STROKES),
    "amount": _Look("", "█", "#3d7edb", ""),
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its range on the chart's scale, and its kind."""

    begin: float
    end: float
    kind: Kind = "amount"


@dataclass(frozen=True, slots=True)
class Row:
    """One line: a label, bars, and a text behind them."""

    label: str
    bars: Sequence[Bar]
    value: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Rows on a scale that begins at 0.

    Attributes:
        title: The title.
        rows: The rows from top to bottom.
        most: The end of the scale; 0 means the end of the longest bar.
        ends: The texts at both ends of the scale; empty if the rows have values behind the bars.
    """

    title: str
    rows: Sequence[Row]
    most: float = 0
    ends: tuple[str, str] = ("", "")

    @property
    def scale(self) -> float:
        """The end of the scale, more than 0."""
        return self.most or max((bar.end for row in self.rows for bar in row.bars), default=0) or 1.0

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of bars in the legend."""
        found = {bar.kind for row in self.rows for bar in row.bars} - {"amount"}
        return [kind for kind in LOOKS if kind in found]


# With block characters.

_LABEL = 26  # columns, at most
_EIGHTHS = "▏▎▍▌▋▊▉"


def text(chart: Chart, width: int = 72) -> str:
    """Return the lines of a chart, at most ``width`` columns; a bar above 0 has at least one character."""
    label = min(max((len(row.label) for row in chart.rows), default=0), _LABEL, width // 3)
    value = max((len(row.value) for row in chart.rows), default=0)
    room = max(width - label - value - 4, 8)
    lines = [
        f"{_cut(row.label, label):{label}}  {_cells(row.bars, chart.scale, room)}  {row.value:>{value}}".rstrip()
        for row in chart.rows
    ]
    if any(chart.ends):
        begin, end = chart.ends
        lines.append(f"{'':{label}}  {begin}{end:>{max(room - len(begin), len(end) + 1)}}")
    if kinds := chart.kinds:
        lines.append("   ".join(f"{LOOKS[kind].block} {LOOKS[kind].word}" for kind in kinds))
    return "\n".join(lines)


def _cells(bars: Sequence[Bar], scale: float, room: int) -> str:
    cells = [" "] * room
    for bar in bars:
        begin, end = (round(8 * room * min(max(at / scale, 0), 1)) for at in (bar.begin, bar.end))
        first, last = min(begin // 8, room - 1), end // 8
        block = LOOKS[bar.kind].block
        for column in range(first, min(max(last, first + (bar.kind != "amount")), room)):
            cells[column] = block
        if bar.kind == "amount" and last < room and (end % 8 or (bar.end > bar.begin and last == first)):
            part = end % 8 if begin < 8 * last else end - begin
            cells[last] = _EIGHTHS[max(part, 1) - 1]
    return "".join(cells)


def _cut(label: str, most: int) -> str:
    label = "".join(character if character.isprintable() else " " for character in label)
    return truncate(label, most)


# As SVG.

_ROW, _GAP, _PAD = 20, 6, 6
_WIDTH = 680
_CHARACTER = 7.3  # the width of one, at most: no font is known here


def svg(chart: Chart, name: str = "chart") -> str:
    """Return a chart as one self-contained ``<svg>`` element.

    Ids begin with ``name``, which must be unique on a page: other charts cannot use definitions of a folded one.
    """
    label = min(max((len(row.label) for row in chart.rows), default=0), _LABEL + 8) * _CHARACTER + 8
    value = max((len(row.value) for row in chart.rows), default=0) * _CHARACTER + 8
    left, room = _PAD + label, _WIDTH - 2 * _PAD - label - value
    below = (18 if any(chart.ends) else 0) + (22 if chart.kinds else 0)
    height = 2 * _PAD + len(chart.rows) * (_ROW + _GAP) + below
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img">',
        # Not at the top: Emacs has a style for that, which would win.
        f"<title>{escape(chart.title)}</title>",
        '<g font-family="system-ui, sans-serif" font-size="12" fill="currentColor">',
        *_patterns(chart.kinds, name),
    ]
    y = _PAD
    for row in chart.rows:
        middle = y + _ROW / 2 + 4
        drawn.append(_words(left - 8, middle, _cut(row.label, _LABEL + 8), "end"))
        for bar in row.bars:
            begin, end = (min(max(at / chart.scale, 0), 1) * room for at in (bar.begin, bar.end))
            drawn += _rectangle(left + begin, y, max(end - begin, 1.5), _ROW, bar.kind, name)
        drawn.append(_words(_WIDTH - _PAD, middle, row.value, "end", dim=True))
        y += _ROW + _GAP
    if any(chart.ends):
        drawn.append(_words(left, y + 10, chart.ends[0], "start", dim=True))
        drawn.append(_words(left + room, y + 10, chart.ends[1], "end", dim=True))
        y += 18
    x = left
    for kind in chart.kinds:
        drawn += _rectangle(x, y + 4, 12, 12, kind, name)
        drawn.append(_words(x + 17, y + 14, LOOKS[kind].word, "start"))
        x += 17 + len(LOOKS[kind].word) * _CHARACTER + 18
    return "\n".join([*drawn, "</g>", "</svg>"])


def _words(x: float, y: float, words: str, anchor: str, *, dim: bool = False) -> str:
    opacity = ' fill-opacity=".75"' if dim else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{opacity}>{escape(words)}</text>'


def _patterns(kinds: Iterable[Kind], name: str) -> Iterator[str]:
    for kind in kinds:
        if LOOKS[kind].pattern:
            inside = LOOKS[kind].pattern
            yield f'<defs><pattern id="{name}-{kind}" width="6" height="6" patternUnits="userSpaceOnUse">{inside}'
            yield "</pattern></defs>"


def _rectangle(x: float, y: float, width: float, height: float, kind: Kind, name: str) -> Iterator[str]:
    shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="2"'
    yield f'{shape} fill="{LOOKS[kind].colour}"/>'
    if LOOKS[kind].pattern:
        yield f'{shape} fill="url(#{name}-{kind})"/>'


# The charts: costs of sessions, the timeline of a turn, the contents of the context.

_MOST_ROWS = 24
_DAYS = 62  # rows of days, also of those on which nothing was spent


def spending(lines: Sequence[Mapping[str, Any]], by: str, rest: Mapping[str, Any] | None = None) -> Chart:
    """Return the chart of the lines of ``usage-report``: days in order, other groups by falling cost.

    ``rest`` is the sum of further lines, if there are any.
    """
    dollars = any(line["known_usd"] for line in lines)
    spent = "known_usd" if dollars else "total"
    amounts = [(_name(line), float(line[spent])) for line in lines]
    if by == "day":
        amounts, cut, rest = sorted(_each_day(dict(amounts)).items())[-_DAYS:], [], None
    else:
        amounts, cut = amounts[:_MOST_ROWS], amounts[_MOST_ROWS:]
    if cut or rest:
        number, amount = (rest["number"], rest[spent]) if rest else (0, 0.0)
        amounts.append((f"{len(cut) + number} others", sum((each for _, each in cut), amount)))
    rows = [Row(name, (Bar(0, amount),), _amount(amount, dollars=dollars)) for name, amount in amounts]
    return Chart(f"What was spent, by {by}, in {'dollars' if dollars else 'tokens'}", rows)


def _name(line: Mapping[str, Any]) -> str:
    return str(line.get("title") or line.get("session_id") or line["key"])


def _each_day(amounts: Mapping[str, float]) -> dict[str, float]:
    days = sorted(map(date.fromisoformat, amounts))
    if not days or (days[-1] - days[0]).days > _DAYS:
        return dict(amounts)
    every = (days[0] + timedelta(days=number) for number in range((days[-1] - days[0]).days + 1))
    return {day.isoformat(): amounts.get(day.isoformat(), 0) for day in every}


def _amount(amount: float, *, dollars: bool) -> str:
    return words.dollars(amount) if dollars else words.short_tokens(round(amount))


_AGENT_TOOLS = ("PersistentAgent", "mission", "task")


def turns(conversation: Conversation) -> Iterator[tuple[Message, Chart]]:
    """Yield each prompt of the user that was answered, with the timeline of its turn."""
    prompt: Message | None = None
    answers: list[Message] = []
    for message in [*conversation.messages.values(), None]:
        if message is not None and message.role == "assistant":
            answers.append(message)
        elif message is None or message.role == "user":
            if prompt is not None and (rows := list(_steps(prompt, answers, conversation))):
                yield prompt, _from_first(rows)
            prompt, answers = message, []


def _steps(prompt: Message, answers: Sequence[Message], conversation: Conversation) -> Iterator[Row]:
    """Yield a row for each request and each call, in epoch ms."""
    before = float(prompt.row.get("created_at") or 0)  # where what came before the next request ends
    asks = conversation.asks.values()
    waits = {
        str(each.get("tool_call_id")): each for each in asks if each.get("created_at") and each.get("decided_at")
    }
    for message in answers:
        model = served_by(message.row).model or "model"
        for part in message.parts:
            begin, end = float(part.row.get("created_at") or 0), float(part.row.get("updated_at") or 0)
            if not begin or not before or part.hidden:
                continue
            if part.type == "step-start":
                yield Row(model, (Bar(min(before, begin), end, "model"),), _seconds(end - min(before, begin)))
                before = max(before, end)
            elif part.is_tool:
                facts = part.data.get("metadata") or {}
                took = facts.get("duration_ms")
                name = part.type.removeprefix("tool-")
                kind: Kind = "agent" if name in _AGENT_TOOLS else "tool"
                bars = [Bar(max(end - took, begin) if isinstance(took, int) else end, end, kind)]
                if ask := waits.get(str(part.data.get("toolCallId"))):
                    wait = Bar(float(ask["created_at"]), float(ask["decided_at"]), "wait")
                    bars = [wait, Bar(max(bars[0].begin, wait.end), max(end, wait.end), kind)]
                summary = str(facts.get("summary") or name)
                yield Row(summary, bars, _seconds(end - bars[0].begin))
                before = max(before, end)


def _from_first(rows: Sequence[Row]) -> Chart:
    """Return the timeline of ``rows``, from the beginning of the first; of too many the shortest are left out."""
    begin = min(bar.begin for row in rows for bar in row.bars)
    end = max(bar.end for row in rows for bar in row.bars)
    lengths = sorted((max(bar.end for bar in row.bars) - row.bars[0].begin for row in rows), reverse=True)
    least = lengths[_MOST_ROWS - 1] if len(lengths) > _MOST_ROWS else -1
    kept = [row for row in rows if max(bar.end for bar in row.bars) - row.bars[0].begin >= least][:_MOST_ROWS]
    moved = [
        Row(row.label, [Bar(bar.begin - begin, bar.end - begin, bar.kind) for bar in row.bars], row.value)
        for row in kept
    ]
    left_out = f" ({len(rows) - len(kept)} shorter steps left out)" if len(kept) < len(rows) else ""
    return Chart(f"How the turn went{left_out}", moved, most=end - begin, ends=("0 s", _seconds(end - begin)))


def _seconds(ms: float) -> str:
    if ms >= 3_600_000:
        return f"{ms / 3_600_000:.1f} h"
    return f"{ms / 60_000:.1f} min" if ms >= 60_000 else f"{ms / 1000:.1f} s"


_BLOCKS = {
    "tool_result": "results of tools",
    "function_call_output": "results of tools",
    "functionResponse": "results of tools",
    "tool_use": "calls of tools",
    "function_call": "calls of tools",
    "functionCall": "calls of tools",
    "tool_calls": "calls of tools",
    "thinking": "reasoning",
    "reasoning": "reasoning",
    "reasoning_content": "reasoning",
    "image": "pictures and files",
    "document": "pictures and files",
    "image_url": "pictures and files",
    "input_image": "pictures and files",
    "inlineData": "pictures and files",
}
_ORDER = (
    "system prompt",
    "descriptions of tools",
    "you",
    "answers",
    "reasoning",
    "calls of tools",
    "results of tools",
    "pictures and files",
)


def context(system: object, tools: object, messages: Iterable[Mapping[str, Any]], used: int, window: int) -> Chart:
    """Return the chart of the contents of the context: each part of a request with its share of ``used`` tokens.

    Args:
        system: The request's system prompt.
        tools: Its descriptions of tools.
        messages: Its conversation, in the format of any provider.
        used: The provider's count of tokens; the share of each part is by its length.
        window: The model's window in tokens.
    """
    sizes = {"system prompt": _size(system), "descriptions of tools": _size(tools)}
    for name, size in _parts(messages):
        sizes[name] = sizes.get(name, 0) + size
    whole = sum(sizes.values()) or 1
    shares = {name: used * sizes[name] / whole for name in _ORDER if sizes.get(name)}
    edges = accumulate(shares.values(), initial=0.0)
    drawn = [
        Row(name, (Bar(begin, end),), f"{_amount(share, dollars=False)}  {100 * share / window:.0f}%")
        for (name, share), (begin, end) in zip(shares.items(), pairwise(edges), strict=True)
    ]
    if window > used:
        free = f"{_amount(window - used, dollars=False)}  {100 * (window - used) / window:.0f}%"
        drawn.append(Row("free", (), free))
    return Chart("What fills the context, in tokens", drawn, most=used)


def _parts(messages: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    for message in messages:
        role = message.get("role")
        if role == "system":
            continue
        spoken = "results of tools" if role == "tool" else "answers" if role in ("assistant", "model") else "you"
        spoken = _BLOCKS.get(str(message.get("type")), spoken)
        for key in ("tool_calls", "reasoning_content"):
            if message.get(key):
                yield _BLOCKS[key], _size(message[key])
        content = message.get("content", message.get("parts", message if "type" in message else None))
        for block in content if isinstance(content, list) else (content,):
            names = (block.get("type"), *block) if isinstance(block, Mapping) else ()
            yield next((_BLOCKS[name] for name in names if name in _BLOCKS), spoken), _size(block)


def _size(value: object) -> int:
    """Return the approximate number of characters in a JSON value."""
    if isinstance(value, str):
        return min(len(value), 6000) if value[:200].isalnum() and len(value) > 6000 else len(value)  # base64
    if isinstance(value, Mapping):
        return sum(_size(each) for key, each in value.items() if key != "cache_control")
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return 0 if value is None else len(str(value))
