"""Compaction: what happens when the model's window is full, or when the user types ``/compact``.

Old tool outputs are removed from the view first. Then the beginning of the conversation is summarised: the summary is
recorded, and the model sees it instead. Nothing is removed from the log.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pyagentd.clock import new_id
from pyagentd.config.tables import CompactionSettings
from pyagentd.errors import BadRequest, Busy, ContextOverflow, ProviderError, StoreError, TransientProviderError
from pyagentd.events import Event
from pyagentd.llm.backend import Backend, ModelRequest, RetryNotice, ask_model, give_up
from pyagentd.llm.catalog import ModelFacts
from pyagentd.llm.prompts import accept_summary, previous_summary, shorten, summary_request, transcript
from pyagentd.messages import Message, Text, ToolCall, ToolResult, Usage
from pyagentd.messages import Part as MessagePart
from pyagentd.runtime import system_prompt
from pyagentd.runtime.document_sync import DocumentVersion
from pyagentd.runtime.feature import Feature
from pyagentd.runtime.run import FitToWindow, Run, RunPhase, RunSettings, Step
from pyagentd.runtime.run_setup import RunBuilder
from pyagentd.runtime.settings import SendOptions, extra_model
from pyagentd.runtime.turns import Prompt
from pyagentd.runtime.usage import context_used, markers, tokens_of
from pyagentd.store.conversation import (
    COMPACTION,
    Conversation,
    Part,
    compaction_data,
    describe_compaction,
    estimated_tokens,
    output_stub,
    summary_message,
)
from pyagentd.store.document.hidden import visible
from pyagentd.store.document.reconcile import align, recognise
from pyagentd.store.document.text import Document
from pyagentd.store.journal import rows_of_message
from pyagentd.tools.spec import schema_of
from pyagentd.words import short_tokens

if TYPE_CHECKING:
    from pyagentd.runtime.branch import LiveBranch
    from pyagentd.runtime.kernel import Kernel


# Choosing which end of a conversation stays verbatim; pure.
#
# A tail begins with a user's turn or, if the last turn alone is too long, with a step of its answer: never between a
# call and its result.


@dataclass(frozen=True, slots=True, kw_only=True)
class TailStart:
    """A possible start of a tail.

    Attributes:
        index: The index of the view's first message that stays.
        message_id: The recorded message that begins there.
        part_id: The ``step-start`` part of that message, "" if all of it stays.
    """

    index: int
    message_id: str
    part_id: str = ""


def tail_starts(view: Sequence[Message], conversation: Conversation) -> list[TailStart]:
    """Return the possible starts of a tail of ``view``, in order; the whole view is no tail."""
    steps = _steps(conversation)
    return [cut for index in range(1, len(view)) if (cut := _cut(view, index, steps)) is not None]


def choose_tail(
    view: Sequence[Message], places: Sequence[TailStart], *, turns: int, budget: int
) -> tuple[TailStart, str] | None:
    """Choose where the kept tail starts; return that and a note for the user or "", or None if nothing can go.

    Args:
        view: The messages that the model sees.
        places: Its ``tail_starts``.
        turns: How many user turns should stay.
        budget: How many tokens they may have.
    """
    left = [*accumulate((tokens_of((message,)) for message in reversed(view)), initial=0)][::-1]  # from each on
    starts = [cut for cut in places if not cut.part_id]
    for number in range(min(turns, len(starts)), 0, -1):
        cut = starts[-number]
        if left[cut.index] <= budget:
            return cut, _fewer(turns, number)
    last = starts[-1] if starts else None
    if last is not None and left[last.index] <= 2 * budget:
        return last, _fewer(turns, 1)
    within = [cut for cut in places if cut.part_id and (last is None or cut.index > last.index)]
    found = next((each for each in within if left[each.index] <= budget), within[-1] if within else last)
    if found is not None and found.part_id:
        return found, "The last turn is too long to stay whole: its beginning was summarised too"
    return None if found is None else (found, _fewer(turns, 1))


def _fewer(turns: int, number: int) -> str:
    if number >= min(turns, 2):
        return ""
    return "Only the last turn stays as it is: the one before takes too much of the model's window"


def _cut(view: Sequence[Message], index: int, steps: dict[str, TailStart]) -> TailStart | None:
    message = view[index]
    if message.role == "user":
        return TailStart(index=index, message_id=message.id) if message.id else None
    before = view[index - 1]
    if not any(isinstance(part, ToolResult) for part in before.parts):
        return None  # it answers a prompt, which would be removed
    calls = (steps.get(part.id) for part in message.parts if isinstance(part, ToolCall))
    found = next((cut for cut in calls if cut is not None), None)
    return None if found is None else TailStart(index=index, message_id=found.message_id, part_id=found.part_id)


def _steps(conversation: Conversation) -> dict[str, TailStart]:
    """Return the start of each recorded call's step."""
    found: dict[str, TailStart] = {}
    for message in conversation.messages.values():
        start: Part | None = None
        for part in () if message.is_hidden or message.role != "assistant" else message.parts:
            if part.type == "step-start":
                start = part
            elif part.is_tool and start is not None:
                found[str(part.data["toolCallId"])] = TailStart(index=0, message_id=message.id, part_id=start.id)
    return found


# Choosing the tool outputs that the model no longer needs; pure.
#
# Old, big ones are pruned: what was read or run can be read or run again. Recent ones stay, and those of tools that
# keep state in their results.

KEEP_RECENT = 5  # results
LEAST = 400  # characters; less is not worth a stub
PROTECTED = frozenset({"TodoWrite", "task", "PersistentAgent", "mission", "question", "skill", "tool_search"})


def prunable_outputs(view: Sequence[Message], conversation: Conversation) -> dict[str, str]:
    """Return the outputs that may be pruned: ids of recorded parts by call id."""
    known = {str(part.data["toolCallId"]): part for part in conversation.parts.values() if part.is_tool}
    names = {part.id: part.name for part in _parts(view) if isinstance(part, ToolCall)}
    results = [part for part in _parts(view) if isinstance(part, ToolResult)]
    found = {}
    for result in results[:-KEEP_RECENT]:
        part = known.get(result.id)
        big = len(result.text) >= LEAST and not result.is_error
        if part is not None and part.edited is None and big and names.get(result.id) not in PROTECTED:
            found[result.id] = part.id
    return found


def tokens_saved(view: Sequence[Message], calls: Mapping[str, str]) -> int:
    """Return about how many tokens pruning these outputs saves."""
    texts = (part.text for part in _parts(view) if isinstance(part, ToolResult) and part.id in calls)
    return sum(estimated_tokens(text) - estimated_tokens(output_stub(text)) for text in texts)


def without_outputs(view: Sequence[Message], calls: Mapping[str, str]) -> tuple[Message, ...]:
    """Return the view with the outputs of ``calls`` replaced by stubs."""
    return tuple(
        replace(message, parts=tuple(_without(part, calls) for part in message.parts))
        if any(isinstance(part, ToolResult) and part.id in calls for part in message.parts)
        else message
        for message in view
    )


def _without(part: MessagePart, calls: Mapping[str, str]) -> MessagePart:
    if isinstance(part, ToolResult) and part.id in calls:
        return ToolResult(id=part.id, text=output_stub(part.text), is_error=part.is_error)
    return part


def _parts(view: Sequence[Message]) -> list[MessagePart]:
    return [part for message in view for part in message.parts]


# One compaction: summarise the beginning, record the marker, and return the remaining view.
#
# That view equals what the next run will read from document and log, message by message: so a provider's prompt cache
# that was filled in this run stays valid for the next.


log = logging.getLogger(__name__)

# A compaction in the log: one synthetic message with one part, see ``store.conversation``.

ORIGIN = "compaction"


def _open_part(conversation: Conversation) -> str:
    """Return the last part of the answer in progress, which the marker follows; "" if there is none."""
    run = conversation.last_run
    if run is None or run.is_finished or run.data.get("kind") == ORIGIN:
        return ""
    for message in reversed(conversation.messages.values()):
        if message.role == "user":
            return ""
        if not message.parts or message.is_hidden:  # a prompt that is sent again: the answer is before it
            continue
        if message.parts[0].type == COMPACTION:
            return str(message.row["metadata_json"].get("after") or "")
        return message.parts[-1].id
    return ""


def marker_of(conversation: Conversation, run_id: str) -> Part | None:
    """Return the last compaction that a run made, or None."""
    for message in reversed(conversation.messages.values()):
        if (
            message.parts
            and message.parts[0].type == COMPACTION
            and message.row["metadata_json"].get("run_id") == run_id
        ):
            return message.parts[0]
    return None


# Requests for a summary, with fallbacks for a conversation that is too long to summarise at once.
#
# The order: complete, without tool outputs, in pieces, without its middle; the last two in ever smaller sizes, since
# a server may accept less than the catalog says. Each request is smaller than the refused one. Transient failures are
# retried a few times; then the caller goes on without a summary.

CUT = "[The summary was cut off here: it reached the most tokens it may have.]"
_OVERHEAD = 600  # tokens of the request's fixed text
_STUB_FROM = 400  # characters of an output
_MOST_PIECES = 24  # each is a request
_LEAST = 64  # tokens: no request is made with less room


@dataclass(slots=True)
class Summary:
    """A summary, its usage and its strategy."""

    text: str
    usage: Usage = field(default_factory=Usage)
    strategy: str = "one-shot"  # one-shot, pruned, chunked, drop-middle


class Summariser:
    """Requests summaries from one model.

    Args:
        backend: Its server.
        model: Its name.
        known: Its limits.
        settings: The configuration.
        observe: Called with every failure that is retried.
        request: Makes the request, as ``summary_request`` does.
    """

    def __init__(
        self,
        backend: Backend,
        model: str,
        *,
        known: ModelFacts,
        settings: CompactionSettings,
        observe: Callable[[RetryNotice], None] = lambda retrying: None,
        request: Callable[..., ModelRequest] = summary_request,
    ) -> None:
        self.model = model
        self._request = request
        self._backend = backend
        self._settings = settings
        window = known.context_window
        self._known = known
        self._longest = known.longest(min(settings.max_tokens, window // 4))
        self._room = max(1, window - self._longest - _OVERHEAD)
        self._observe = observe
        self._usage = Usage()
        self._refused = sys.maxsize  # tokens of the smallest request that was too long

    async def summarise(self, previous: str, messages: Sequence[Message], instructions: str = "") -> Summary:
        """Return the summary of ``messages``, with ``previous`` folded in.

        Raises:
            ContextOverflow: They are too long for every strategy.
            TransientProviderError: The model's server failed temporarily, or took too long.
            ProviderError: It refused, or returned no text.
        """
        self._usage = Usage()
        self._refused = sys.maxsize
        for strategy, before, pieces in self._ladder(previous, messages):
            try:
                text = await self._fold(before, pieces, instructions)
            except ContextOverflow:
                continue
            return Summary(text, self._usage, strategy)
        raise ContextOverflow("The conversation is too long to be summarised")

    def _ladder(self, previous: str, messages: Sequence[Message]) -> Iterator[tuple[str, str, list[str]]]:
        """Yield the strategies in order: name, initial summary, and the texts to fold into it."""
        settings, earlier = self._settings, estimated_tokens(previous)
        whole = transcript(messages)
        if earlier + estimated_tokens(whole) <= self._room:
            yield "one-shot", previous, [whole]
        stubbed = transcript(
            messages, output=lambda text: output_stub(text) if len(text) >= _STUB_FROM else shorten(text)
        )
        if settings.prune_tool_outputs and earlier + estimated_tokens(stubbed) <= min(self._room, self._refused - 1):
            yield "pruned", previous, [stubbed]
        shortest = stubbed if settings.prune_tool_outputs else whole
        while (room := min(self._room, self._refused // 2)) >= _LEAST:
            # An earlier summary that leaves too little room is summarised like the rest.
            before, text = (previous, shortest) if 3 * earlier <= room else ("", f"{previous}\n\n{shortest}".strip())
            longest = min(self._longest, room // 3)  # each piece is sent with the summary so far
            refused = self._refused
            share = (room - max(longest, estimated_tokens(before))) * 3 // 4
            if settings.chunked_summarize and estimated_tokens(text) <= share * _MOST_PIECES:
                yield "chunked", before, list(_chunks(text, share))
            share = min(room, self._refused // 2) - estimated_tokens(before)
            if settings.drop_middle and share > 0:
                yield "drop-middle", before, [_ends(text, max(1, share * 3 // 4))]
            if self._refused >= refused:
                return  # no strategy was possible

    async def _fold(self, previous: str, pieces: Sequence[str], instructions: str) -> str:
        for piece in pieces:
            size = estimated_tokens(previous) + estimated_tokens(piece)
            longest = min(self._longest, max(_LEAST, self._refused // 6))
            request = self._request(
                self.model, piece, previous=previous, instructions=instructions, max_tokens=longest
            )
            try:
                previous = await self._ask(request)
            except ContextOverflow:
                self._refused = min(self._refused, size)
                raise
        return previous

    async def _ask(self, request: ModelRequest) -> str:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                summary, cut = await self._ask_model(request)
                more = self._known.longest(2 * request.max_tokens)
                if cut and more > request.max_tokens:  # if that is cut too, it is used and marked as cut
                    with contextlib.suppress(ContextOverflow):
                        summary, cut = await self._ask_model(replace(request, max_tokens=more))
                text = accept_summary(summary)
        except TimeoutError:
            raise TransientProviderError(
                f"The summary took longer than {self._settings.timeout_s:g} seconds"
            ) from None
        if not text:
            raise ProviderError(f"{request.model} gave no summary")
        return f"{text}\n\n{CUT}" if cut else text

    async def _ask_model(self, request: ModelRequest) -> tuple[str, bool]:
        """Return the model's answer, and whether it was cut off at its maximum number of tokens."""
        reply = await ask_model(self._backend, replace(request, purpose="compaction"), retrying=self._wait)
        self._usage += reply.usage
        if reply.stop_reason == "refusal":
            raise ProviderError(f"{request.model} refused to summarise")
        return "\n\n".join(reply.texts), reply.stop_reason == "max_tokens"

    def _wait(self, failed: RetryNotice) -> None:
        if failed.attempt > self._settings.retry_on_transient:
            give_up(failed)
        self._observe(failed)


def _chunks(text: str, tokens: int) -> Iterator[str]:
    """Yield ``text`` in pieces of about so many tokens, cut between paragraphs if possible."""
    longest = max(1, len(text) * tokens // max(1, estimated_tokens(text)))
    start = 0
    while start < len(text):
        end = start + longest
        if end < len(text) and (cut := text.rfind("\n\n", start + longest // 2, end)) > 0:
            end = cut
        yield text[start:end].strip("\n")
        start = end


def _ends(text: str, tokens: int) -> str:
    """Return the beginning and the end of ``text``, about so many tokens in total."""
    share = len(text) * tokens // max(1, estimated_tokens(text)) // 2
    if 2 * share >= len(text):
        return text
    return f"{text[:share]}\n\n[… the middle is left out …]\n\n{text[-share:]}"


PHASE = "COMPACT"
_REQUEST = 4000  # characters of a prompt that are kept verbatim
_PRUNED_TO = 0.6  # of the usable tokens: pruning that frees less would soon need a summary too


class Compactor:
    """Compacts one branch on behalf of one run, with its backend and model; called, it is a ``run.FitToWindow``."""

    def __init__(self, kernel: "Kernel", branch: "LiveBranch", run_id: str, settings: RunSettings) -> None:
        self._kernel = kernel
        self._branch = branch
        self._run_id = run_id
        self._settings = settings
        self._configured = kernel.config.compaction
        self._facts: ModelFacts = kernel.model_facts(settings.model, settings.provider)
        self._usable = self._facts.usable(self._configured.reserve_tokens)
        self._sent = 0  # how many messages the last request had
        # About how many tokens the messages of the smallest request had that the server refused as too long.
        self._refused = sys.maxsize
        self._failed = False  # whether a summary failed in this run: another one would fail as slowly

    async def summarise(
        self, view: Sequence[Message], tail: TailStart | None, *, auto: bool, instructions: str = ""
    ) -> tuple[Message, ...]:
        """Replace everything before ``tail``, or the whole view, by a summary; return the new view.

        Raises:
            ContextOverflow: It is too long to be summarised.
            ProviderError: The model's server failed; nothing was recorded.
            StoreError: A write failed.
        """
        branch, settings = self._branch, self._settings
        branch.state.set_phase(PHASE)
        split = len(view) if tail is None else tail.index
        previous, head = previous_summary(view[:split])
        model = extra_model(self._configured.model, settings.provider, settings.model, self._kernel.config)
        summariser = Summariser(
            settings.backend,
            model,
            known=self._kernel.model_facts(model, settings.provider),
            settings=self._configured,
            observe=lambda item: branch.state.set_phase(PHASE, attempt=item.attempt, message=item.message),
        )
        summary = await summariser.summarise(previous, head, instructions)
        text = "\n\n".join(part for part in (summary.text, _request(view, tail, branch.conversation)) if part)
        data = compaction_data(
            summary=text,
            tail_start_id=tail.message_id if tail else None,
            auto=auto,
            summary_tokens=estimated_tokens(text),
            metadata={
                "messages": len(head),
                "tokens": tokens_of(view[:split]),
                "tail_start_part_id": tail.part_id if tail else "",
                "pruned": self._already_pruned() if tail else [],
                "strategy": summary.strategy if summary.strategy != "one-shot" else "",
            },
        )
        model_row = {"provider_id": settings.provider or None, "model_id": model}
        self._record(data, model=model_row, usage=asdict(summary.usage))
        try:  # the next run begins with the current workplace
            await system_prompt.renew_workplace(self._kernel, branch)
        except (OSError, StoreError) as error:
            log.warning("%s: %s", branch.key, error)
        return with_summary(text, view[split:])

    def _record(self, data: Mapping[str, Any], **facts: Any) -> None:
        """Record a marker, with ``facts`` in its message's metadata, at the run's current place.

        Raises:
            StoreError: A write failed; nothing was shown.
        """
        recorder, session_id = self._branch.recorder, self._branch.ref.session_id
        now_ms, after = recorder.now_ms(), _open_part(recorder.conversation)
        metadata = {"origin": ORIGIN, "synthetic": True, "run_id": self._run_id, **facts}
        if after:
            metadata["after"] = after
        rows = rows_of_message([data], role="assistant", session_id=session_id, metadata=metadata, now_ms=now_ms)
        with recorder.together():
            for kind, row in rows:
                recorder.record(kind, row)
        self._branch.say(f"Compacted: {describe_compaction(data)}")

    def _already_pruned(self) -> list[str]:
        before = next(markers(self._branch.conversation), None)
        return list((before.data.get("metadata") or {}).get("pruned") or ()) if before is not None else []

    # Keeping a run within its model's window: checked before every request, also right after a change of model.
    #
    # At the threshold old tool outputs are pruned, if that is enough; else the beginning is summarised. If the
    # summary fails, the run goes on unchanged, with a notice. A view that cannot be made to fit is refused with
    # advice; the user's message stays.

    @cached_property
    def _overhead(self) -> int:
        """About how many tokens a request has beside its messages; computed only when needed."""
        schemas = (str(schema_of(spec)) for spec in self._settings.tools.values())
        return estimated_tokens(self._settings.system) + sum(map(estimated_tokens, schemas))

    async def __call__(
        self, view: Sequence[Message], last: Usage | None, *, overflow: bool = False
    ) -> tuple[Message, ...] | None:
        """Return a view that fits, None if the given one does.

        Args:
            view: The messages to send.
            last: Usage of the run's last request, None before the first.
            overflow: Whether the model's server just refused it as too long.

        Raises:
            ContextOverflow: It cannot be made to fit.
            StoreError: A write failed.
        """
        if last is not None and self._sent:
            used = last.total + tokens_of(view[self._sent + 1 :])
        else:
            known = context_used(self._branch.conversation)
            is_counted = known.tokens and not known.estimated
            used = known.tokens + tokens_of(view[-1:]) if is_counted else self._overhead + tokens_of(view)
        if overflow:  # the server accepts less than the catalog says, or counts differently
            self._refused = min(self._refused, tokens_of(view))
            self._usable = min(self._usable, self._overhead + self._refused // 2)
        made = None
        if self._configured.auto and (overflow or (used >= self._usable and not self._failed)):
            made = await self._shorten(self._with_prompt_id(tuple(view)), used, overflow=overflow)
        left = used if made is None else self._overhead + tokens_of(made)
        refused = not overflow and not self._failed and self._facts.window_known
        if refused and left > self._facts.context_window:
            raise ContextOverflow(
                f"The conversation has about {short_tokens(left)} tokens, and {self._settings.model} holds "
                f"{short_tokens(self._facts.context_window)}"
            )
        if overflow and made is not None and tokens_of(made) >= tokens_of(view):
            return None  # it would be refused too
        self._sent = len(made or view)
        return made

    async def _shorten(self, view: tuple[Message, ...], used: int, *, overflow: bool) -> tuple[Message, ...] | None:
        if not overflow and (left := self._prune(view, used)) is not None:
            return left
        places = [cut for cut in tail_starts(view, self._branch.conversation) if is_summarised(cut, view)]
        budget = int(min(self._usable, self._refused // 2) * self._configured.tail_budget_pct)
        chosen = choose_tail(view, places, turns=self._configured.tail_turns, budget=budget)
        if chosen is None:
            return None
        tail, warning = chosen
        try:
            made = await self.summarise(view, tail, auto=True)
        except ContextOverflow:
            raise
        except ProviderError as error:
            self._failed = True
            log.warning("%s: not compacted: %s", self._branch.key, error)
            self._branch.say(f"Not compacted, the conversation goes on as it is: {error.message}")
            return None
        if warning:
            self._branch.say(warning)
        return made

    def _prune(self, view: tuple[Message, ...], used: int) -> tuple[Message, ...] | None:
        """Prune old tool outputs if that is enough; return the new view, or None; raises ``StoreError``."""
        before = next(markers(self._branch.conversation), None)
        # The marker must name the view's first message.
        can_prune = view and (view[0].id or before is not None)
        if not self._configured.prune_tool_outputs or not can_prune:
            return None
        calls = prunable_outputs(view, self._branch.conversation)
        if not calls or used - tokens_saved(view, calls) > self._usable * _PRUNED_TO:
            return None
        known: Mapping[str, Any] = before.data if before is not None else {}
        left = without_outputs(view, calls)
        data = compaction_data(
            summary=previous_summary(view)[0],
            tail_start_id=known.get("tail_start_id") or next((message.id for message in view if message.id), None),
            auto=True,
            summary_tokens=known.get("summary_tokens") or 0,
            metadata={
                "tokens": tokens_of(view) - tokens_of(left),
                "tail_start_part_id": (known.get("metadata") or {}).get("tail_start_part_id"),
                "pruned": [*self._already_pruned(), *calls.values()],
                "only_pruned": True,
            },
        )
        self._record(data)
        return left

    def _with_prompt_id(self, view: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the view with the id of the prompt, which was recorded after the view was made."""
        prompt = str(self._branch.conversation.runs[self._run_id].data.get("message_id") or "")
        if not prompt or any(message.id == prompt for message in view):
            return view
        for index in range(len(view) - 1, -1, -1):
            message = view[index]
            if message.role == "user" and not any(isinstance(part, ToolResult) for part in message.parts):
                if message.id:
                    return view  # the prompt was joined to an earlier one without an answer
                return (*view[:index], replace(message, id=prompt), *view[index + 1 :])
        return view


def with_summary(summary: str, tail: Sequence[Message]) -> tuple[Message, ...]:
    """Return a view of ``summary`` and the tail; the next run reads the same from document and log."""
    head = Text(text=summary_message(summary))
    if tail and tail[0].role == "user":
        return (replace(tail[0], parts=(head, *tail[0].parts)), *tail[1:])
    return (Message(role="user", parts=(head,)), *tail)


def _request(view: Sequence[Message], tail: TailStart | None, conversation: Conversation) -> str:
    """Return the unanswered prompt that would be summarised, as part of the summary; or "".

    It is read from the log, with the messages that steered its run: after an earlier compaction the view may begin
    behind it.
    """
    split = len(view) if tail is None else tail.index
    open_turn = split == len(view) and bool(view) and view[-1].role == "user"
    if not (open_turn or (tail is not None and tail.part_id)):
        return ""
    texts: list[str] = []
    for message in visible(conversation):
        if tail is not None and message.id == tail.message_id:
            break
        if message.role == "user":
            goes_on = message.metadata.get("steered") and not message.metadata.get("context")
            text = message.text if message.is_edited else message.model_text
            texts = [*(texts if goes_on else ()), text[:_REQUEST]]
    words = "\n\n".join(texts).replace("```", "~~~")
    return f"## Current Request\nThe user's words:\n\n{words}" if words else ""


def is_summarised(cut: TailStart | None, view: Sequence[Message]) -> bool:
    """Return whether anything before ``cut`` is more than an earlier summary."""
    head = previous_summary(view if cut is None else view[: cut.index])[1]
    return any(message.parts for message in head)


class Compaction(Feature):
    """Keeps runs within the windows of their models."""

    def fit_for(self, run: RunBuilder, settings: RunSettings) -> FitToWindow | None:
        """Return the fitter of a run."""
        return Compactor(self.kernel, run.branch, run.run_id, settings)

    def resumed_view(self, view: tuple[Message, ...], conversation: Conversation, run_id: str) -> tuple[Message, ...]:
        """Return the view of a run that had compacted the conversation before the daemon restarted.

        ``view`` ignores that compaction: its block is below the prompt up to which the document is read.
        """
        marker = marker_of(conversation, run_id)
        if marker is None or marker.hidden:
            return view
        facts: Mapping[str, Any] = marker.data.get("metadata") or {}
        wanted = marker.data.get("tail_start_id"), facts.get("tail_start_part_id") or ""
        place = next(
            (cut for cut in tail_starts(view, conversation) if (cut.message_id, cut.part_id) == wanted), None
        )
        left = previous_summary(view)[1] if place is None else view[place.index :]
        gone = facts.get("pruned") or ()
        parts = (part for part in conversation.parts.values() if part.is_tool and part.id in gone)
        left = without_outputs(left, {str(part.data["toolCallId"]): part.id for part in parts})
        summary = str(marker.data.get("summary") or "")
        return with_summary(summary, left) if summary else left


# A compaction by command: the whole conversation is summarised, and nothing stays verbatim.
#
# It is a run of its own kind: the branch is busy meanwhile, it can be aborted, and new messages are queued. Its block
# goes behind the last recorded text; what the user has written below stays there.

_BEHIND = 200  # characters by which the place is found


class CompactionRun(Run):
    """A run that only compacts."""

    def __init__(self, compact: Callable[[], Awaitable[Any]], **given: Any) -> None:
        super().__init__(**given)
        self._compact = compact

    async def _begin(self) -> Step | None:  # type: ignore[override]  # its first step is its last
        await self._prepare()
        self._move(RunPhase.COMPACT)
        await self._compact()
        return None


async def compact(kernel: "Kernel", branch: "LiveBranch", options: SendOptions, instructions: str = "") -> str:
    """Start to compact a branch; return the id of the run.

    Raises:
        Busy: It has a run, its editor has not saved, or the daemon is stopping.
        BadRequest: There is nothing to compact.
        PyagentdError: The document, the preset or the backend is unusable; nothing was recorded.
    """
    async with branch.starting:
        branch.require_idle()
        branch.require_writable()
        live = await branch.document.look()
        await branch.look_once()
        run_id, conversation = new_id("run"), branch.conversation.snapshot()
        found = await asyncio.to_thread(_read, live.document, live.revision, conversation)
        settings = await RunBuilder(kernel, branch, run_id, options).settings(found.settings)
        if kernel.closing:
            raise Busy("The daemon is stopping", hint="Try it again in a moment")
        compactor = Compactor(kernel, branch, run_id, settings)
        run = CompactionRun(
            lambda: compactor.summarise(found.view, None, auto=False, instructions=instructions),
            run_id=run_id,
            session_id=branch.ref.session_id,
            recorder=branch.recorder,
            view=found.view,
            settings=settings,
            prepare=branch.secure,
            observe=lambda run, status: branch.state.set_phase(str(status.get("phase", ""))),
        )
        # No await from here on: what is started gets supervised.
        anchor = branch.document.place(found.version)
        with branch.recorder.together():
            for edit in found.edits:
                branch.recorder.record("edit", edit)
        if found.roles is not None:
            branch.tell_roles(found.version, found.roles)
        branch.document.begin(prompt=found.text, inserted_prompt=False, anchor=anchor)
        place = {"position": anchor + 1, "behind": found.text}
        branch.publish(Event("compacting", branch.key, 0, (place,)))
        row = {"id": run_id, "state": "started", "kind": ORIGIN, "message_id": "", "interactive": options.interactive}
        branch.recorder.record("run", {**row, "anchor": anchor, "prompt": "", "behind": found.text})
        kernel.set_off(branch, run, options)
        started = {"id": run_id, "phase": "started", "kind": ORIGIN}
        branch.publish(Event("run", branch.key, branch.recorder.last_seq, (started,)))
        return run_id


def _read(doc: Document, revision: int, conversation: Conversation) -> Prompt:
    """Return the conversation to compact, as a ``Prompt`` whose text is the end of the recorded text."""
    whole = recognise(doc, conversation)
    spans = None if whole.document.spans == doc.spans else whole.document.spans
    anchor = whole.record_end  # the log's last text is the document's last
    aligned = align(doc, conversation, anchor)
    if not is_summarised(None, aligned.view):
        raise BadRequest("There is nothing to compact", hint="Say something first")
    version = DocumentVersion(revision=revision, marker=anchor)
    return Prompt(
        text=doc.body[max(0, anchor - _BEHIND) : anchor],
        view=aligned.view,
        version=version,
        edits=aligned.edits,
        roles=spans,
        settings=doc.settings,
    )
