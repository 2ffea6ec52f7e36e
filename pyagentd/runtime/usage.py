"""Tokens and costs of one conversation: how full the model's window is, and what the requests cost."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

from pyagentd.llm.catalog import ModelFacts
from pyagentd.messages import Media, Message, Reasoning, Text, ToolCall, ToolResult, Usage
from pyagentd.store.conversation import (
    COMPACTION,
    Conversation,
    estimated_tokens,
    message_usage,
    requests_of,
    usage_beyond,
    usage_of,
)
from pyagentd.store.conversation import Message as Message_
from pyagentd.store.conversation import Part as Part_
from pyagentd.store.journal import ProviderModel, Row, served_by
from pyagentd.words import dollars, short_tokens

_CALL_TOKENS = 16  # overhead of a call or a result


def tokens_of(messages: Sequence[Message]) -> int:
    """Estimate the tokens of messages."""
    tokens = 0
    for message in messages:
        for part in message.parts:
            match part:
                case Text(text=text) | Reasoning(text=text):
                    tokens += estimated_tokens(text)
                case ToolCall(input=arguments):
                    tokens += _CALL_TOKENS + estimated_tokens(str(dict(arguments)))
                case ToolResult(text=text):
                    tokens += _CALL_TOKENS + estimated_tokens(text)
                case Media():  # added for a link, after its text was counted
                    pass
    return tokens


# Cost of a conversation and its share of the model's window, from the provider's token counts.
#
# Three numbers: *spent* counts every request, also of hidden turns. *Used* (``tokens_used``) sums the answers that
# still count towards the model's context: not the hidden ones, and after a compaction only its summary and tail.
# *Context* (``context_used``) is the tokens that the last request read and wrote, since each request counts the whole
# history again. All functions are pure.

FactsOf = Callable[[ProviderModel], ModelFacts]

_PICO = 10**12  # sums of whole picodollars are exact, however many there are


class Cost(TypedDict):
    """Tokens and US dollars."""

    tokens: Mapping[str, int]  # by bucket
    total: int
    cost_usd: float | None  # nil if the price of a model is unknown
    known_usd: float  # the known part of the cost
    unpriced: list[str]  # models without a known price


@dataclass(frozen=True, slots=True, kw_only=True)
class Expense:
    """The cost of requests.

    Attributes:
        tokens: Tokens in five buckets.
        pico: The known part of the cost, in 1e-12 US dollars.
        unpriced: Models that took part and have no known price.
    """

    tokens: Usage = field(default_factory=Usage)
    pico: int = 0
    unpriced: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tokens: Usage, usd: float) -> "Expense":
        """Return the expense of ``tokens`` that cost ``usd`` together."""
        return cls(tokens=tokens, pico=round(usd * _PICO))

    @property
    def cost_usd(self) -> float | None:
        """The cost in US dollars; None if the price of a model is unknown."""
        return None if self.unpriced else self.known_usd

    @property
    def known_usd(self) -> float:
        """The known part of the cost in US dollars."""
        return self.pico / _PICO

    def __add__(self, other: "Expense") -> "Expense":
        """Return the sum of both."""
        return Expense(
            tokens=self.tokens + other.tokens,
            pico=self.pico + other.pico,
            unpriced=self.unpriced | other.unpriced,
        )

    def to_wire(self) -> Cost:
        """Return the expense in wire format."""
        return {
            "tokens": self.tokens.to_dict(),
            "total": self.tokens.total,
            "cost_usd": self.cost_usd,
            "known_usd": self.known_usd,
            "unpriced": sorted(self.unpriced),
        }


class ContextReply(TypedDict):
    """How full a branch's context is, and what the branch cost; the content of ``context`` events."""

    used: int  # tokens that the next request takes before new messages
    estimated: bool  # whether ``used`` is estimated, not counted by a provider
    window: int  # tokens
    window_known: bool
    usable: int  # tokens of the window, without room for the answer
    model: str | None  # the model that answered last, or would answer next
    tokens: Mapping[str, int]  # of the branch's own answers, by bucket
    last: Mapping[str, int]  # of the last request, by bucket
    cost_usd: float | None  # with agents; nil if the price of a model is unknown
    known_usd: float  # with agents, the known part of the cost
    own_usd: float | None
    agents: int  # number of agents below
    agents_total: int  # tokens
    compactions: int
    short: str  # tokens and cost in a few characters
    words: list[str]  # the facts as lines for people


def context_words(reply: ContextReply) -> Iterator[str]:
    """Yield the facts about a context as lines for people."""
    window = "" if reply["window_known"] else " (estimated: the window of this model is not configured)"
    model = f" of {reply['model']}" if reply["model"] else ""
    about = "about " if reply["estimated"] else ""
    yield f"Context: {about}{reply['used']:,} of {reply['window']:,} tokens{window}{model}"
    yield f"Compacted from {reply['usable']:,} on"
    yield f"Last request: {_buckets(reply['last'])}"
    yield f"Session: {_buckets(reply['tokens'])}"
    if reply["agents"]:
        yield f"Its {reply['agents']} agents: {reply['agents_total']:,} tokens"
    if reply["cost_usd"] is not None:
        yield f"Cost: {dollars(reply['cost_usd'])}"
    else:
        known = f"{dollars(reply['known_usd'])} and " if reply["known_usd"] else ""
        yield f"Cost: {known}unknown (no price of a model in config.toml)"
    if reply["compactions"]:
        yield f"Compactions: {reply['compactions']}"


def _buckets(counts: Mapping[str, int]) -> str:
    kinds = ("input", "output", "reasoning", "cache_read", "cache_write")
    return ", ".join(f"{kind.replace('_', ' ')} {counts.get(kind) or 0:,}" for kind in kinds)


def cost(known: float, *, unpriced: bool) -> str:
    """Return a cost for people, ``known`` in US dollars; an unknown part is shown as a question mark."""
    if not unpriced:
        return dollars(known)
    return f"{dollars(known)}+?" if known else "$?"


class InContext(NamedTuple):
    """The tokens that the next request takes before new messages; ``estimated`` if no provider counted them."""

    tokens: int
    estimated: bool


def spent_on(message: Message_, facts_of: FactsOf) -> "Expense":
    """Return the cost of one message."""
    tokens = message_usage(message)
    if not tokens.total:
        return Expense()
    served = served_by(message.row)
    prices = facts_of(served).prices
    if prices is None:
        return Expense(tokens=tokens, unpriced=frozenset({served.model or "unknown"}))
    return Expense(tokens=tokens, pico=sum(round(prices.of(each.usage) * _PICO) for each in requests_of(message)))


def session_usage(conversation: Conversation, facts_of: FactsOf) -> "Expense":
    """Return the cost of a conversation, including its hidden messages."""
    return sum((spent_on(message, facts_of) for message in conversation.messages.values()), Expense())


def tokens_used(conversation: Conversation) -> Usage:
    """Return the tokens of the answers that count towards the model's context."""
    marker = next(filter(_is_boundary, markers(conversation)), None)
    counted = Usage() if marker is None else Usage(input=_summary_tokens(marker))
    return sum((message_usage(message) for message in _counted_messages(conversation, marker)), counted)


def context_used(conversation: Conversation) -> InContext:
    """Return the tokens that the next request takes before new messages: those that the last one read and wrote."""
    for message in reversed(conversation.messages.values()):
        if message.is_hidden:
            continue
        marker = _marker_in(message)
        if marker is not None and _is_boundary(marker):
            tail = sum(_estimate(other) for other in _tail(conversation, marker))
            return InContext(_summary_tokens(marker) + tail, True)
        if marker is None and (last := usage_of(message.metadata.get("last_usage"))).total:
            return InContext(last.total, bool(message.metadata.get("usage_estimated")))
    return InContext(0, False)


def markers(conversation: Conversation) -> Iterator[Part_]:
    """Yield the compactions that are not hidden, latest first."""
    visible = (message for message in reversed(conversation.messages.values()) if not message.is_hidden)
    return (marker for message in visible if (marker := _marker_in(message)) is not None)


def _counted_messages(conversation: Conversation, marker: Part_ | None) -> Iterator[Message_]:
    if marker is None:
        messages: Iterable[Message_] = conversation.messages.values()
    else:
        messages = _tail(conversation, marker)
    return (
        message
        for message in messages
        if message.role == "assistant" and not message.is_hidden and _marker_in(message) is None
    )


def _tail(conversation: Conversation, marker: Part_) -> Iterator[Message_]:
    """Yield the messages that the model sees unsummarised: from the first one kept, or all after the marker."""
    start = marker.data.get("tail_start_id")
    if start not in conversation.messages:
        start = None
    begun = False
    for message in conversation.messages.values():
        begun = begun or message.id == start
        if begun and not message.is_hidden and _marker_in(message) is None:
            yield message
        begun = begun or message.id == marker.row["message_id"]


def _estimate(message: Message_) -> int:
    texts = [part.text for part in message.parts if part.type == "text" and not part.hidden]
    for part in message.parts:
        if part.is_tool and not part.hidden:
            result = part.result
            texts += [str(part.data.get("input", "")), result[0] if result else ""]
    return sum(estimated_tokens(text) for text in texts)


def _marker_in(message: Message_) -> Part_ | None:
    first = message.parts[0] if message.parts else None
    return first if first is not None and first.type == COMPACTION and not first.hidden else None


def _is_boundary(marker: Part_) -> bool:
    return bool(marker.data.get("summary"))  # one without a summary only prunes


def _summary_tokens(marker: Part_) -> int:
    tokens = marker.data.get("summary_tokens")
    return tokens if type(tokens) is int else estimated_tokens(str(marker.data.get("summary", "")))


# One branch's meter: how full the model's window is and what the session cost, updated with every row.
#
# An update takes constant time: each message's share is cached, and a row only recounts its own message. The meters
# of agents report their cost up the tree; the cost of agents that ended before is read from their logs.


class _Answer:
    """The cost of an answer that is still growing; each request is counted once, when it ends."""

    def __init__(self, message: Message_, facts: ModelFacts) -> None:
        self.message = message
        self.served = served_by(message.row)
        self._prices = facts.prices
        self._parts: dict[str, None] = {}  # takes a quarter of a set's memory
        self._usage = Usage()
        self._pico = 0
        for part in message.parts:
            self.add(part)

    def add(self, part: Part_) -> bool:
        """Count a request that ended; return False if it was counted before."""
        if part.id in self._parts:
            return False
        if part.type != "step-start" or not (usage := usage_of(part.data.get("usage"))).total:
            return True
        self._parts[part.id] = None
        self._usage += usage
        self._pico += self._price(usage)
        return True

    def spent(self) -> Expense:
        """Return the cost of the message, see ``spent_on``."""
        tokens = message_usage(self.message)
        if not tokens.total:
            return Expense()
        if self._prices is None:
            return Expense(tokens=tokens, unpriced=frozenset({self.served.model or "unknown"}))
        return Expense(tokens=tokens, pico=self._pico + self._price(usage_beyond(tokens, self._usage)))

    def _price(self, usage: Usage) -> int:
        return 0 if self._prices is None or not usage.total else round(self._prices.of(usage) * _PICO)


class Meter:
    """Measures the context and cost of one branch.

    Args:
        conversation: The conversation to measure.
        facts_of: Returns the facts about a model.
        served: Returns the model that would answer next, for a conversation without an answer.
        changed: Called when the branch's own numbers or the cost of agents below changed.

    Attributes:
        changed: As given.
        looked: Whether the logs of agents that ended before were read.
    """

    def __init__(
        self,
        conversation: Conversation,
        facts_of: FactsOf,
        *,
        served: Callable[[], ProviderModel],
        changed: Callable[[], None],
    ) -> None:
        self._agents: dict[str, Expense] = {}
        self._below = Expense()  # the sum of their costs
        self.looked = False
        self._conversation = conversation
        self._facts_of = facts_of
        self._served = served
        self.changed = changed
        self._shares: dict[str, Expense] = {}  # by message
        self._own = Expense()
        self._answer: _Answer | None = None
        self._compactions = 0
        self._counted = False

    @property
    def own(self) -> "Expense":
        """The cost of the branch itself."""
        self._count()
        return self._own

    @property
    def together(self) -> "Expense":
        """The cost of the branch and all agents below it."""
        return self._below + self.own

    def set_agents(self, agents: Mapping[str, Expense]) -> None:
        """Set the cost of each agent below, at any depth, by its branch's key."""
        self._agents, self._below = dict(agents), sum(agents.values(), Expense())

    def note(self, key: str, spent: "Expense") -> None:
        """Update the cost so far of the agent with this key."""
        old = self._agents.get(key, Expense())
        self._agents[key] = spent
        self._below = _replace_share(self._below, old, spent) or sum(self._agents.values(), Expense())
        self.changed()

    def take(self, row: Row) -> None:
        """Count a row that the conversation already has."""
        data = row.data
        match row.type:
            case "message" if data["role"] == "assistant" and "usage" in (data.get("metadata_json") or {}):
                self._share(data["id"])
                message = self._conversation.messages.get(data["id"])
                if message is not None and _marker_in(message) is not None:
                    self._compactions = -1
                self.changed()
            case "part" if data["type"] == "step-start" and "usage" in data["data_json"]:
                self._share(data["message_id"], data["id"])  # published with the message's row
            case "part" if data["type"] == COMPACTION:
                self._compactions = -1
                self.changed()
            case "edit":
                self._compactions = -1

    def to_wire(self) -> ContextReply:
        """Return the fields of a ``context`` event, see ``events``."""
        self._count()
        if self._compactions < 0:
            self._compactions = sum(1 for _ in markers(self._conversation))
        served, last = self._last()
        facts = self._facts_of(served)
        context = context_used(self._conversation)
        together = self.together
        reply: ContextReply = {
            "used": context.tokens,
            "estimated": context.estimated,
            "window": facts.context_window,
            "window_known": facts.window_known,
            "usable": facts.usable(),
            "model": served.model,
            "tokens": self._own.tokens.to_dict(),
            "last": last,
            "cost_usd": together.cost_usd,
            "known_usd": together.known_usd,
            "own_usd": self._own.cost_usd,
            "agents": len(self._agents),
            "agents_total": self._below.tokens.total,
            "compactions": self._compactions,
            "short": f"{short_tokens(context.tokens)} {cost(together.known_usd, unpriced=together.cost_usd is None)}",
            "words": [],
        }
        reply["words"] = list(context_words(reply))
        return reply

    def _last(self) -> tuple[ProviderModel, dict[str, int]]:
        """Return the model that answered last and the usage of its last request."""
        for message in reversed(self._conversation.messages.values()):
            metadata = message.row.get("metadata_json") or {}
            if message.role == "assistant" and "usage" in metadata and metadata.get("origin") != "compaction":
                return served_by(message.row), usage_of(metadata.get("last_usage")).to_dict()
        return self._served(), Usage().to_dict()

    def _count(self) -> None:
        if self._counted:
            return
        self._counted, self._compactions = True, -1
        for message in self._conversation.messages.values():
            self._shares[message.id] = spent_on(message, self._facts_of)
        self._own = sum(self._shares.values(), Expense())

    def _share(self, message_id: str, part_id: str = "") -> None:
        message = self._conversation.messages.get(message_id)
        if message is None or not self._counted:
            return
        part, served = self._conversation.parts.get(part_id), served_by(message.row)
        answer = self._answer
        grows = answer is not None and answer.message is message and answer.served == served
        if answer is None or not grows or not (part is None or answer.add(part)):
            self._answer = answer = _Answer(message, self._facts_of(served))
        old, new = self._shares.get(message_id, Expense()), answer.spent()
        if old == new:
            return
        self._shares[message_id] = new
        if old.tokens.total:  # may return None: then sum all shares, which is rare
            self._own = _replace_share(self._own, old, new) or sum(self._shares.values(), Expense())
        else:
            self._own += new


def _replace_share(whole: "Expense", old: "Expense", new: "Expense") -> "Expense | None":
    """Return ``whole`` with one share replaced; None if unknown prices prevent subtraction."""
    if old.unpriced != new.unpriced:
        return None
    counts = {key: count - getattr(old.tokens, key) for key, count in whole.tokens.to_dict().items()}
    rest = Expense(tokens=usage_of(counts), pico=whole.pico - old.pico, unpriced=whole.unpriced)
    return rest + new
