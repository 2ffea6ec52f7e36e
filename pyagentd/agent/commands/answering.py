"""A command and its answer in the conversation where it was typed: recorded, shown, never sent to a model.

In the log both are a turn that nobody computed, hidden from its first row on (``hidden_by`` is ``command``); in the
document it has the role ``ignore`` and stays readable. While a run goes on, messages wait or nothing can be written,
a command is answered to its client alone.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.branches.persist import Version
from pyagentd.agent.commands.command import Answer, Call
from pyagentd.agent.commands.reading import may_be_command, typed
from pyagentd.agent.revising.history import History
from pyagentd.agent.running.outcome import Outcome
from pyagentd.agent.running.run import new_run_id
from pyagentd.agent.turns.queue import Submission, Submitted
from pyagentd.agent.turns.turn import Prompt
from pyagentd.errors import PyagentdError, UserError, did_you_mean
from pyagentd.events import Event
from pyagentd.store.document import hidden
from pyagentd.store.document.files import memory
from pyagentd.store.document.render import writable
from pyagentd.store.journal import message_row, part_row

if TYPE_CHECKING:  # the host has the commands
    from pyagentd.agent.host import Host

log = logging.getLogger(__name__)

_SLASH = re.compile(r"^[#* \t]*/[A-Za-z]", re.MULTILINE)
_ALIKE = 0.75  # how much a word has in common with the command that was meant
_TICKS = re.compile(r"`{3,}")


_NO_HUMAN = "Type it at a terminal or in Emacs, send it with --command, or use the command line's own command for it"


class NoHuman(UserError):
    """A command that changes something came from a program that did not ask for it as a command."""

    code = "no-human"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What became of a command.

    Attributes:
        name: Which, without its arguments.
        text: The answer, or what is wrong.
        data: The answer for programs.
        code: Of the error, "" when there was none.
        is_recorded: Whether it stands in the conversation; if not, its client alone has it.
        run_id: The turn it is in the log, "" when it is not recorded.
        message_id: Of the command itself, likewise.
        seq: The log's last row.
        submitted: The message that the command sent to the model, if it is one that does.
        began: The run that it began and that goes on, such as a compaction; "" for most.
    """

    name: str
    text: str
    data: Any
    code: str = ""
    is_recorded: bool = False
    run_id: str = ""
    message_id: str = ""
    seq: int = 0
    submitted: Submitted | None = None
    began: str = ""


async def answered(host: Host, branch: LiveBranch, given: Submission, client: Any) -> Answered | None:
    """Do what a submission says if it is a command; None when it is a message for the model.

    Raises:
        PyagentdError: What stands before the end of the document cannot be read; a message would fail too.
        NoHuman: The command changes something, and nobody says that a human typed it.
    """
    if given.command == "never" or not given.is_persons or _came(branch, given) or not await _may_be(branch, given):
        return None
    prompt = await _prompt(branch, given)
    if prompt.message_id:  # it was sent to a model before
        return None
    text = prompt.text.strip()
    known = await host.commands.of(branch.ref)
    name, code = text.split()[0].removeprefix("/"), ""
    try:
        if (found := typed(text, known)) is None:
            if near := did_you_mean(name, {each.split()[0] for each in known}, shown="/{}", cutoff=_ALIKE):
                _say(branch, f"/{name} is no command, and was sent as it is. {near}")
            return None
        name = found.command.name
        if not _may_change(given) and found.command.changes(found.arguments):
            raise NoHuman(f"/{name} changes something, and nobody is there who typed it", mend=_NO_HUMAN)
        call = Call(
            command=found.command, arguments=found.arguments, ref=branch.ref, options=given.options, client=client
        )
        answer = await found.command.run(call)
    except NoHuman:
        raise
    except PyagentdError as error:
        answer, code = Answer(text=str(error), data={"error": error.message, "mend": error.mend}), error.code
    made = Answered(name=name, text=answer.text, data=answer.data, code=code)
    if answer.text:
        made = await _recorded(host, branch, prompt, made, given, goes_on=bool(answer.prompt))
    if answer.then is not None:
        try:
            made = replace(made, began=await answer.then() or "")
        except PyagentdError as error:
            _say(branch, str(error))
            made = replace(made, text=str(error), code=error.code)
    if answer.prompt:
        origin = {"origin": answer.prompt_origin} if answer.prompt_origin else {}
        sent = await host.submit(branch, Submission(text=answer.prompt, options=given.options, metadata=origin))
        made = replace(made, submitted=sent)
    return replace(made, seq=branch.recorder.last_seq)


def _may_change(given: Submission) -> bool:
    """Return whether a command may do more than look: a human typed it, or it was asked for as a command."""
    return given.options.interactive or given.command == "always"


async def _may_be(branch: LiveBranch, given: Submission) -> bool:
    """Return whether it is worth while to read what was submitted as a command; most is not."""
    if given.text is not None:
        return may_be_command(given.text.strip())
    doc = (await asyncio.to_thread(memory.read, branch.file)).document
    spans = [span.end for span in doc.spans if span.end <= given.end]
    return _SLASH.search(doc.body[max(spans, default=0) : given.end]) is not None


def _came(branch: LiveBranch, given: Submission) -> bool:
    """Return whether the same submission came before; what became of it is the business of the queue."""
    return given.id is not None and given.id in branch.conversation.messages


async def _prompt(branch: LiveBranch, given: Submission) -> Prompt:
    """Return the prompt that a submission is; while a run goes on it has no place in the document."""
    if given.text is not None and (branch.run is not None or branch.queue.waiting):
        return _bare(given.text)
    if given.text is not None:
        return await branch.prompts.from_client(given.text)
    if branch.run is not None or branch.queue.waiting:
        return _bare(await branch.prompts.text_to_queue(sha256=given.sha256, end=given.end))
    return await branch.prompts.from_document(sha256=given.sha256, end=given.end)


def _bare(text: str) -> Prompt:
    return Prompt(text=text.strip(), view=(), version=Version(sha256="", seq=0, marker=None))


# -- in the conversation ------------------------------------------------------------------------------------------


async def _recorded(
    host: Host, branch: LiveBranch, prompt: Prompt, made: Answered, given: Submission, *, goes_on: bool
) -> Answered:
    """Put a command and its answer into the conversation, if that can be done now; ``goes_on``: a message follows."""
    async with branch.starting:
        if not _may_stand(host, branch, prompt):
            return made
        await branch.keeper.settle()
        await branch.look_once()
        again = await _as_it_is(branch, prompt, given)
        if not _may_stand(host, branch, prompt):
            return made
        # No await from here on: either all of it is there or the next daemon ends it.
        run_id, now_ms = new_run_id(), branch.recorder.now_ms()
        hiding = {**hidden.mark(hidden.COMMAND, now_ms=now_ms), "command": made.name}
        hinted = replace(again, metadata={**hiding, **_sent(given)}, id=given.id or "")
        seq = branch.start_run(hinted, run_id=run_id, interactive=given.options.interactive)
        _tell_run(branch, run_id, seq, "started")
        with branch.recorder.together():
            for kind, data in _facts(branch, made.text, hiding, now_ms):
                branch.recorder.record(kind, data)
        branch.finish_run(run_id, Outcome(reason="done", text=""))
        await branch.secure()
        branch.note_complete()
        _tell_run(branch, run_id, branch.tell_end(run_id), "finished")
        if branch.keeper.editor is None:
            await History(host).give_roles_held(branch, hidden.COMMAND)
    if branch.keeper.editor is not None:  # it saves first
        giving = _give_roles(host, branch)
        await giving if goes_on else host.own(giving)  # what follows stands below roles that the editor knows
    for listener in host.listeners:
        listener.branch_written(branch.ref)
    message_id = str(branch.conversation.runs[run_id].data["message_id"])
    return replace(made, is_recorded=True, run_id=run_id, message_id=message_id)


def _may_stand(host: Host, branch: LiveBranch, prompt: Prompt) -> bool:
    """Return whether something can be put into a branch now, below the prompt; it may be gone since."""
    is_free = branch.run is None and not branch.queue.waiting and not branch.refusal and not host.closing
    return is_free and prompt.version.marker is not None and host.opened(branch.key) is branch


async def _as_it_is(branch: LiveBranch, prompt: Prompt, given: Submission) -> Prompt:
    """Return the prompt in the document as the command left it; as it was, if it is an editor's other text by now."""
    try:
        return await _prompt(branch, given)
    except PyagentdError:
        return replace(prompt, edits=())


def _sent(given: Submission) -> dict[str, Any]:
    """Return what tells that the same submission came before."""
    return {} if given.id is None else {"payload": given.payload}


def _facts(branch: LiveBranch, text: str, metadata: dict[str, Any], now_ms: int) -> Iterator[tuple[str, Any]]:
    """Yield the rows of an answer."""
    session_id = branch.ref.session_id
    message = message_row(role="assistant", session_id=session_id, metadata=metadata, now_ms=now_ms)
    yield "message", message
    data = {"type": "text", "text": writable(_fenced(text)), "state": "done"}
    part = part_row(message_id=message["id"], session_id=session_id, index=0, kind="text", data=data, now_ms=now_ms)
    yield "part", part


def _fenced(text: str) -> str:
    """Return an answer as it stands in Markdown: lines keep their columns."""
    if "\n" not in text:
        return text
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence} text\n{text}\n{fence}"


def _say(branch: LiveBranch, text: str) -> None:
    branch.publish(Event("notice", branch.key, 0, ({"text": text},)))


def _tell_run(branch: LiveBranch, run_id: str, seq: int, phase: Literal["started", "finished"]) -> None:
    message_id = branch.conversation.runs[run_id].data["message_id"]
    end: dict[str, Any] = {"reason": "done", "message": ""} if phase == "finished" else {"message_id": message_id}
    branch.publish(Event("run", branch.key, seq, ({"id": run_id, "phase": phase, **end},)))


async def _give_roles(host: Host, branch: LiveBranch) -> None:
    try:
        async with host.using(branch.ref) as live, live.starting:
            if live.run is None:
                await History(host).give_roles_held(live, hidden.COMMAND)
    except PyagentdError as error:  # the next turn, or whoever opens it, sees to it
        log.info("%s: the roles of a command: %s", branch.ref.name, error)
