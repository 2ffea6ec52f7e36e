"""Keeping a run within its model's window: looked at before every request, also right after a change of model.

At the threshold old tool outputs go first, if that is enough; then the beginning is summarised. A summary that fails
costs nothing but itself: the run goes on as it is, and says so. What does not fit whatever is done is refused with
advice; the user's message stays (spec 002 "How should errors be designed", neighbours B.3).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyagentd.agent.compacting.compactor import Compactor, is_summarised
from pyagentd.agent.compacting.pruning import prunable, saving
from pyagentd.agent.compacting.tail import Tail, chosen, cuts, tokens_of
from pyagentd.agent.context.usage import context_used
from pyagentd.agent.running.runsettings import RunSettings
from pyagentd.errors import ContextOverflow, ProviderError
from pyagentd.llm.catalog import ModelFacts, facts
from pyagentd.messages import Message, ToolResult, Usage
from pyagentd.store.conversation import estimated, round_tokens
from pyagentd.tools.spec import schema_of

if TYPE_CHECKING:  # the host starts the runs that are kept fitting
    from pyagentd.agent.branches.branch import LiveBranch
    from pyagentd.agent.host import Host

log = logging.getLogger(__name__)

_PRUNED_TO = 0.6  # of what is usable: pruning that frees less is followed by a summary soon


def fitting(host: Host, branch: LiveBranch, run_id: str, settings: RunSettings) -> RunSettings:
    """Return ``settings`` of a run that is kept within the window of its model."""
    return replace(settings, fit=Fitting(Compactor(host, branch, run_id, settings), host, branch, run_id, settings))


class Fitting:
    """See ``run.Fit``."""

    def __init__(
        self, compactor: Compactor, host: Host, branch: LiveBranch, run_id: str, settings: RunSettings
    ) -> None:
        self._compactor = compactor
        self._branch = branch
        self._run_id = run_id
        self._model = settings.model
        self._facts: ModelFacts = facts(settings.model, host.config, backend=settings.provider)
        self._configured = host.config.compaction
        self._usable = self._facts.usable(self._configured.reserve_tokens)
        schemas = (str(schema_of(spec)) for spec in settings.tools.values())
        self._overhead = estimated(settings.system) + sum(map(estimated, schemas))
        self._sent = 0  # how many messages the last request had
        self._refused = (
            sys.maxsize
        )  # about how many tokens the messages of the smallest request had that the server found too long
        self._failed = False  # whether a summary of this run failed: another one would be as slow to fail

    async def __call__(
        self, view: tuple[Message, ...], last: Usage | None, *, overflow: bool = False
    ) -> tuple[Message, ...] | None:
        """Return a view that fits, None when this one does.

        Args:
            view: What is to be sent.
            last: Usage of the run's last request, None before the first.
            overflow: Whether the model's server just refused it as too long.

        Raises:
            ContextOverflow: It does not fit whatever is done.
            StoreError: The disk refused.
        """
        view = self._named(view)
        used = self._used(view, last)
        if overflow:  # the server holds less than is known of it, or counts otherwise
            self._refused = min(self._refused, tokens_of(view))
            self._usable = min(self._usable, self._overhead + self._refused // 2)
        made = None
        if self._configured.auto and (overflow or (used >= self._usable and not self._failed)):
            made = await self._made(view, used, overflow=overflow)
        left = used if made is None else self._overhead + tokens_of(made)
        refused = not overflow and not self._failed and self._facts.window_known
        if refused and left > self._facts.context_window:
            raise ContextOverflow(
                f"The conversation has about {round_tokens(left)} tokens, and {self._model} holds "
                f"{round_tokens(self._facts.context_window)}"
            )
        if overflow and made is not None and tokens_of(made) >= tokens_of(view):
            return None  # it would be refused as well
        self._sent = len(made or view)
        return made

    async def _made(self, view: tuple[Message, ...], used: int, *, overflow: bool) -> tuple[Message, ...] | None:
        if not overflow and (left := self._pruned(view, used)) is not None:
            return left
        tail = self._tail(view)
        if tail is None:
            return None
        try:
            made = await self._compactor.summarise(view, tail, auto=True)
        except ContextOverflow:
            raise
        except ProviderError as error:
            self._failed = True
            log.warning("%s: not compacted: %s", self._branch.key, error)
            self._compactor.say(f"Not compacted, the conversation goes on as it is: {error.message}")
            return None
        if tail.warning:
            self._compactor.say(tail.warning)
        return made

    def _pruned(self, view: tuple[Message, ...], used: int) -> tuple[Message, ...] | None:
        """Leave out old tool outputs if that is enough; return what is left, or None."""
        if not self._configured.prune_tool_outputs or not self._compactor.can_prune(view):
            return None
        calls = prunable(view, self._branch.conversation)
        if not calls or used - saving(view, calls) > self._usable * _PRUNED_TO:
            return None
        return self._compactor.prune(view, calls)

    def _tail(self, view: Sequence[Message]) -> Tail | None:
        """Return what stays, None when nothing can go."""
        places = [cut for cut in cuts(view, self._branch.conversation) if is_summarised(cut, view)]
        budget = int(min(self._usable, self._refused // 2) * self._configured.tail_budget_pct)
        return chosen(view, places, turns=self._configured.tail_turns, budget=budget)

    def _named(self, view: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the view with the id of the prompt, which was not recorded when the view was made."""
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

    def _used(self, view: Sequence[Message], last: Usage | None) -> int:
        """Return about how many tokens the request takes."""
        if last is not None and self._sent:
            return last.total + tokens_of(view[self._sent + 1 :])
        known = context_used(self._branch.conversation)
        if known.tokens and not known.estimated:
            return known.tokens + tokens_of(view[-1:])
        return self._overhead + tokens_of(view)
