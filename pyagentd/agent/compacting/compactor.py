"""One compaction: what goes is summarised, the marker recorded, and the view that is left returned.

The view is what the next run will read from document and log, message by message: a provider's prompt cache that was
filled in this run is good for the next.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from pyagentd.agent.compacting.marking import last_marker, record_marker
from pyagentd.agent.compacting.pruning import pruned
from pyagentd.agent.compacting.summariser import Summariser
from pyagentd.agent.compacting.tail import Cut, Tail, tokens_of
from pyagentd.agent.prompting import surroundings
from pyagentd.agent.running.runsettings import RunSettings
from pyagentd.agent.running.settings import extra_model
from pyagentd.errors import StoreError
from pyagentd.events import Event
from pyagentd.llm.backend import Retrying
from pyagentd.llm.catalog import facts
from pyagentd.llm.prompts import previous_summary
from pyagentd.messages import Message, Text, Usage
from pyagentd.store.conversation import compaction_data, estimated, summarised, wrapped

if TYPE_CHECKING:  # the host starts the runs that compact
    from pyagentd.agent.branches.branch import LiveBranch
    from pyagentd.agent.host import Host

log = logging.getLogger(__name__)

PHASE = "COMPACT"
_REQUEST = 4000  # characters of a prompt that is kept word for word


class Compactor:
    """Compacts one branch on behalf of one run.

    Args:
        host: Whose configuration holds.
        branch: What is compacted.
        run_id: The run.
        settings: Of the run: backend and model.
    """

    def __init__(self, host: Host, branch: LiveBranch, run_id: str, settings: RunSettings) -> None:
        self._host = host
        self._branch = branch
        self._run_id = run_id
        self._settings = settings
        self.configured = host.config.compaction

    async def summarise(
        self, view: Sequence[Message], tail: Tail | None, *, auto: bool, instructions: str = ""
    ) -> tuple[Message, ...]:
        """Put a summary in place of everything before ``tail``, all of it without one; return the view that is left.

        Raises:
            ContextOverflow: It is too long to be summarised.
            ProviderError: The model's server failed; nothing was recorded.
            StoreError: The disk refused.
        """
        branch = self._branch
        branch.state.moved(PHASE)
        split = len(view) if tail is None else tail.cut.index
        previous, head = previous_summary(view[:split])
        summariser = self._summariser()
        summary = await summariser.summarise(previous, head, instructions)
        text = "\n\n".join(part for part in (summary.text, _request(view, tail)) if part)
        data = compaction_data(
            summary=text,
            tail_start_id=tail.cut.message_id if tail else None,
            auto=auto,
            summary_tokens=estimated(text),
            metadata={
                "messages": len(head),
                "tokens": tokens_of(view[:split]),
                "tail_start_part_id": tail.cut.part_id if tail else "",
                "pruned": self._already_pruned() if tail else [],
                "strategy": summary.strategy if summary.strategy != "one-shot" else "",
            },
        )
        self._record(data, model=summariser.model, usage=summary.usage)
        await self._look_again()
        return with_summary(text, view[split:])

    def prune(self, view: Sequence[Message], calls: Mapping[str, str]) -> tuple[Message, ...]:
        """Leave out the outputs of ``calls`` (ids of parts by call id); return the view that is left.

        Raises:
            StoreError: The disk refused.
        """
        before = last_marker(self._branch.conversation)
        known: Mapping[str, Any] = before.data if before is not None else {}
        facts: Mapping[str, Any] = known.get("metadata") or {}
        left = pruned(view, calls)
        tail_id = known.get("tail_start_id") if before is not None else None
        data = compaction_data(
            summary=previous_summary(view)[0],
            tail_start_id=tail_id or next((message.id for message in view if message.id), None),
            auto=True,
            summary_tokens=known.get("summary_tokens") or 0,
            metadata={
                "tokens": tokens_of(view) - tokens_of(left),
                "tail_start_part_id": facts.get("tail_start_part_id"),
                "pruned": [*self._already_pruned(), *calls.values()],
                "only_pruned": True,
            },
        )
        self._record(data, model="", usage=Usage())
        return left

    def can_prune(self, view: Sequence[Message]) -> bool:
        """Return whether a view begins with what a marker can name."""
        return bool(view) and (bool(view[0].id) or last_marker(self._branch.conversation) is not None)

    def say(self, text: str) -> None:
        """Tell whoever watches."""
        self._branch.publish(Event("notice", self._branch.key, 0, ({"text": text},)))

    def _summariser(self) -> Summariser:
        settings, config = self._settings, self._host.config
        model = extra_model(self.configured.model, settings.provider, settings.model, config)
        known = facts(model, config, backend=settings.provider)
        return Summariser(settings.backend, model, known=known, settings=self.configured, observe=self._retrying)

    def _retrying(self, item: Retrying) -> None:
        self._branch.state.moved(PHASE, attempt=item.attempt, message=item.message)

    def _record(self, data: Mapping[str, Any], *, model: str, usage: Usage) -> None:
        told = {"provider_id": self._settings.provider or None, "model_id": model}
        record_marker(
            self._branch.recorder,
            session_id=self._branch.ref.session_id,
            data=data,
            run_id=self._run_id,
            facts={"model": told, "usage": asdict(usage)} if model else {},
        )
        self.say(f"Compacted: {summarised(data)}")

    def _already_pruned(self) -> list[str]:
        before = last_marker(self._branch.conversation)
        return list((before.data.get("metadata") or {}).get("pruned") or ()) if before is not None else []

    async def _look_again(self) -> None:
        """Make the part of the system prompt anew that says where the session works; the next run begins with it."""
        try:
            await surroundings.renew(self._host, self._branch)
        except (OSError, StoreError) as error:
            log.warning("%s: %s", self._branch.key, error)


def with_summary(summary: str, tail: Sequence[Message]) -> tuple[Message, ...]:
    """Return a view of ``summary`` and what stays; the same as is read from document and log."""
    head = Text(text=wrapped(summary))
    if tail and tail[0].role == "user":
        return (replace(tail[0], parts=(head, *tail[0].parts)), *tail[1:])
    return (Message(role="user", parts=(head,)), *tail)


def _request(view: Sequence[Message], tail: Tail | None) -> str:
    """Return the prompt that is still to be answered and would be summarised, as part of the summary; or ""."""
    split = len(view) if tail is None else tail.cut.index
    open_turn = split == len(view) and bool(view) and view[-1].role == "user"
    if not (open_turn or (tail is not None and tail.cut.part_id)):
        return ""
    for message in reversed(view[:split]):
        texts = [part.text for part in message.parts if isinstance(part, Text) and not _is_summary(part.text)]
        if message.role == "user" and texts:
            return f"## Current Request\nThe user's words:\n\n{texts[-1][:_REQUEST].replace('```', '~~~')}"
    return ""


def _is_summary(text: str) -> bool:
    return text.startswith("<conversation_summary>")


def is_summarised(cut: Cut | None, view: Sequence[Message]) -> bool:
    """Return whether something before ``cut`` is more than an earlier summary."""
    head = previous_summary(view if cut is None else view[: cut.index])[1]
    return any(message.parts for message in head)
