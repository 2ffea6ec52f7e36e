"""One-shot requests for a summary, and what is tried when the conversation is too long even for that.

The ladder: as it is, without the outputs of tools, in pieces, without its middle; the last two in ever smaller sizes,
since a server may hold less than is known of it. Each request is smaller than what was refused. What fails for now is
tried again a few times; whoever asked goes on without a summary then.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from pyagentd.config.tables import CompactionSettings
from pyagentd.errors import ContextOverflow, ProviderError, TransientProviderError
from pyagentd.llm.backend import Backend, ModelRequest, PartFinished, Retrying, StepFinished
from pyagentd.llm.catalog import ModelFacts
from pyagentd.llm.prompts import accepted, shortened, summary_request, transcript
from pyagentd.messages import Message, Text, Usage
from pyagentd.store.conversation import estimated, output_stub

CUT = "[The summary was cut off here: it reached the most tokens it may have.]"
_OVERHEAD = 600  # tokens of our own words in a request
_STUB_FROM = 400  # characters of an output
_MOST_PIECES = 24  # each is a request
_LEAST = 64  # tokens: a request that has no room for so many is not made


@dataclass(slots=True)
class Summary:
    """A summary and what it took."""

    text: str
    usage: Usage = field(default_factory=Usage)
    strategy: str = "one-shot"  # one-shot, pruned, chunked, drop-middle


class Summariser:
    """Asks one model for summaries.

    Args:
        backend: Its server.
        model: Its name.
        known: How much it can hold and say.
        settings: What is configured.
        observe: Told of every failure that is tried again.
        request: Makes the request, as ``summary_request`` does.
    """

    def __init__(
        self,
        backend: Backend,
        model: str,
        *,
        known: ModelFacts,
        settings: CompactionSettings,
        observe: Callable[[Retrying], None] = lambda retrying: None,
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
            ContextOverflow: They are too long whatever is left out.
            TransientProviderError: The model's server failed for now, or took too long.
            ProviderError: It refused, or said nothing.
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
        """Yield what may be tried in turn: its name, the summary it begins with, and the texts that go into that."""
        settings, earlier = self._settings, estimated(previous)
        whole = transcript(messages)
        if earlier + estimated(whole) <= self._room:
            yield "one-shot", previous, [whole]
        stubbed = transcript(messages, output=_stubbed)
        if settings.prune_tool_outputs and earlier + estimated(stubbed) <= min(self._room, self._refused - 1):
            yield "pruned", previous, [stubbed]
        shortest = stubbed if settings.prune_tool_outputs else whole
        while (room := min(self._room, self._refused // 2)) >= _LEAST:
            # An earlier summary that leaves too little room is summarised like the rest.
            before, text = (previous, shortest) if 3 * earlier <= room else ("", f"{previous}\n\n{shortest}".strip())
            longest = min(self._longest, room // 3)  # a summary so far goes with each piece
            refused = self._refused
            share = (room - max(longest, estimated(before))) * 3 // 4
            if settings.chunked_summarize and estimated(text) <= share * _MOST_PIECES:
                yield "chunked", before, list(_chunks(text, share))
            share = min(room, self._refused // 2) - estimated(before)
            if settings.drop_middle and share > 0:
                yield "drop-middle", before, [_ends(text, max(1, share * 3 // 4))]
            if self._refused >= refused:
                return  # nothing was tried

    async def _fold(self, previous: str, pieces: Sequence[str], instructions: str) -> str:
        for piece in pieces:
            size = estimated(previous) + estimated(piece)
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
                said, cut = await self._said(request)
                more = self._known.longest(2 * request.max_tokens)
                if cut and more > request.max_tokens:  # what is cut then is better than none, and says so
                    with contextlib.suppress(ContextOverflow):
                        said, cut = await self._said(replace(request, max_tokens=more))
                text = accepted(said)
        except TimeoutError:
            raise TransientProviderError(
                f"The summary took longer than {self._settings.timeout_s:g} seconds"
            ) from None
        if not text:
            raise ProviderError(f"{request.model} gave no summary")
        return f"{text}\n\n{CUT}" if cut else text

    async def _said(self, request: ModelRequest) -> tuple[str, bool]:
        """Return what the model answered, and whether it was cut off at the most tokens it may have."""
        texts: list[str] = []
        cut = False
        async with aclosing(self._backend.stream(replace(request, purpose="compaction"))) as batches:
            async for batch in batches:
                for item in batch:
                    match item:
                        case Retrying():
                            if item.attempt > self._settings.retry_on_transient:
                                raise TransientProviderError(item.message)
                            self._observe(item)
                        case PartFinished(part=Text(text=text)):
                            texts.append(text)
                        case StepFinished():
                            self._usage += item.usage
                            if item.stop_reason == "refusal":
                                raise ProviderError(f"{request.model} refused to summarise")
                            cut = item.stop_reason == "max_tokens"
        return "\n\n".join(texts), cut


def _stubbed(text: str) -> str:
    return output_stub(text) if len(text) >= _STUB_FROM else shortened(text)


def _chunks(text: str, tokens: int) -> Iterator[str]:
    """Yield ``text`` in pieces of about so many tokens, cut between paragraphs where that is possible."""
    longest = max(1, len(text) * tokens // max(1, estimated(text)))
    start = 0
    while start < len(text):
        end = start + longest
        if end < len(text) and (cut := text.rfind("\n\n", start + longest // 2, end)) > 0:
            end = cut
        yield text[start:end].strip("\n")
        start = end


def _ends(text: str, tokens: int) -> str:
    """Return the beginning and the end of ``text``, together of about so many tokens."""
    share = len(text) * tokens // max(1, estimated(text)) // 2
    if 2 * share >= len(text):
        return text
    return f"{text[:share]}\n\n[… the middle is left out …]\n\n{text[-share:]}"
