"""Hooks: programs and Emacs functions of the user, and of trusted projects, that are called at five points of a run.

A hook can only restrict. Its changes are validated and authorised as if the model or the user had made them. A hook
that fails, times out or is not trusted changes nothing, and the user is notified. docs/hooks.md describes its JSON.
"""

import asyncio
import json
import logging
import os
import shlex
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd import installation, reader
from pyagentd.config.tables import HookSettings
from pyagentd.errors import Blocked, ToolError
from pyagentd.events import Sink
from pyagentd.features.emacs import EmacsClients, NoAnswer, TooLong
from pyagentd.policy.action import Action
from pyagentd.policy.presets import Preset
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import Feature, RunEnded
from pyagentd.runtime.grants import ProjectPrograms, RunWitness, project_hooks
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.turns import Prompt
from pyagentd.tools.process import Group, child_environment

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder

log = logging.getLogger(__name__)


# Running one hook program: JSON on standard input, an exit code and optionally JSON on standard output.
#
# It runs as the user, in the workspace, without keys in its environment, in its own process group; the group is
# killed when the program ends, times out, or its run is cancelled.

BLOCKS = 2  # the exit code

_MOST_PRINTED = 1_000_000  # of its output
_REST_S = 0.5  # to read its remaining output after its end
_SHOWN = 2000  # characters of a reason
_NO_REASON = "no reason was given"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer:
    """The answer of a hook."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    blocks: str | None = None  # the reason, if it blocks
    problem: str = ""  # why its answer is unusable
    duration_ms: int = 0


async def ask_program(
    hook: HookSettings, facts: Mapping[str, Any], *, base: Path, root: Path, env: Mapping[str, str]
) -> HookAnswer:
    """Run ``hook`` in the workspace ``root`` and return its answer; raises nothing but cancellation.

    A relative program name is resolved from ``base``; ``env`` is the client's environment.
    """
    started, own, pipe = time.monotonic(), _environment(hook.event, root, env), asyncio.subprocess.PIPE
    try:
        if (program := _program(hook.command[0], base)) is None:
            return HookAnswer(problem=problem_of(hook, base))
        group = await Group.start(program, *hook.command[1:], cwd=root, env=own, stdin=pipe, stdout=pipe, stderr=pipe)
        process, out, err = group.process, bytearray(), bytearray()
        works = (_read(process.stdout, out), _read(process.stderr, err), _write(process.stdin, facts))
        pipes = [asyncio.ensure_future(work) for work in works]
        try:
            async with asyncio.timeout(hook.timeout_s):
                code = await group.exit_code()
            await asyncio.wait(pipes, timeout=_REST_S)  # its background processes may hold them open
            word = parse_answer(code, bytes(out), bytes(err))
        except TimeoutError:
            word = HookAnswer(problem=f"it did not answer within {hook.timeout_s:g} s and was stopped")
        finally:
            for task in pipes:
                task.cancel()
            await group.stop(grace_s=0.2)
    except OSError as error:
        word = HookAnswer(problem=f"it could not be run: {error.strerror or error}")
    return replace(word, duration_ms=round((time.monotonic() - started) * 1000))


def parse_answer(code: int, out: bytes, err: bytes) -> HookAnswer:
    """Parse a hook's exit code and output."""
    message = err.decode(errors="replace").strip()[:_SHOWN]
    if code == BLOCKS:
        return HookAnswer(blocks=message or _NO_REASON)
    if code != 0:
        return HookAnswer(problem=f"it ended with {code}: {message}" if message else f"it ended with {code}")
    text = out.decode(errors="replace").strip()
    if not text:
        return HookAnswer()
    try:
        changes = reader.parse(text)
    except ValueError:
        changes = None
    if not isinstance(changes, dict):
        return HookAnswer(problem=f"it printed no JSON object: {text[:80]!r}")
    return answer_of(changes)


_ANSWERS: Mapping[str, type] = {"text": str, "agent": str, "model": str, "append": str, "input": dict}


def answer_of(reply: Mapping[str, Any]) -> HookAnswer:
    """Parse a hook's JSON: with ``block`` or ``deny``, not null or false, it blocks; else it has changes.

    A value of the wrong type is dropped and reported as a problem.
    """
    given = {key: value for key, value in reply.items() if value is not None}
    reasons = [given.pop(key) for key in ("block", "deny") if given.get(key, False) is not False]
    if reasons:
        return HookAnswer(blocks=next((why for why in reasons if isinstance(why, str) and why), _NO_REASON))
    wrong = [key for key, kind in _ANSWERS.items() if key in given and not isinstance(given[key], kind)]
    problem = "; ".join(
        f"its `{key}` is {json.dumps(given.pop(key), default=str)[:80]}, where "
        f"{'an object' if _ANSWERS[key] is dict else 'a text'} is wanted"
        for key in wrong
    )
    return HookAnswer(changes=given, problem=problem)


def problem_of(hook: HookSettings, base: Path) -> str:
    """Return why the program of ``hook``, resolved from ``base``, cannot be run; "" if it seems that it can."""
    program = _program(hook.command[0], base)
    if program is None:
        return f"there is no program {hook.command[0]}: give its whole path"
    if not os.path.isfile(program):  # noqa: PTH113
        return f"there is no program {program}"
    return "" if os.access(program, os.X_OK) else f"{program} is not executable: chmod +x {shlex.quote(program)}"


def _program(name: str, base: Path) -> str | None:
    """Return the path of a program; a name without a path is found in the system's directories only."""
    if "/" not in name and not name.startswith("~"):
        return installation.program(name)
    return str(base / os.path.expanduser(name))  # noqa: PTH111 - Path raises


def _environment(event: str, root: Path, client: Mapping[str, str]) -> dict[str, str]:
    """Return the environment: no keys, and no directory of the workspace on ``PATH``."""
    env = child_environment(client)
    inside = str(root.resolve())
    kept = [
        each
        for each in env.get("PATH", installation.PATH).split(":")
        if each.startswith("/") and not f"{os.path.realpath(each)}/".startswith(f"{inside}/")
    ]
    return {**env, "PATH": ":".join(kept) or installation.PATH, "PYAGENTD_HOOK": event}


async def _read(stream: asyncio.StreamReader | None, kept: bytearray) -> None:
    """Read a stream to its end and keep its beginning, so that the program never blocks on it."""
    assert stream is not None
    while data := await stream.read(65_536):
        kept += data[: _MOST_PRINTED - len(kept)]


async def _write(stream: asyncio.StreamWriter | None, facts: Mapping[str, Any]) -> None:
    assert stream is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # the program may not read its input
        stream.write(json.dumps(facts, ensure_ascii=True, default=str).encode())
        await stream.drain()
    with suppress(BrokenPipeError, ConnectionResetError):
        stream.close()
        await stream.wait_closed()


TIMEOUT_S = 3.0  # for the functions of an Emacs; a silent one may be gone or busy
MOST_TEXT = 100_000  # characters of one field passed to hooks
_LAST_S = 3.0  # for hooks of ended runs, when the daemon stops


class Hooks(Feature):
    """Runs the hooks of the user and of projects, and the hook functions of clients."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self._notices: set[tuple[str, str]] = set()
        self._telling: set[asyncio.Task[None]] = set()  # running hooks for ends of runs
        kernel.bus.on(RunEnded, self._run_ended)

    @cached_property
    def emacs(self) -> EmacsClients | None:
        """The clients that may have hook functions."""
        return self.kernel.find(EmacsClients)

    # -- the five points -----------------------------------------------------------------------------------------

    async def before_prompt(self, branch: LiveBranch, prompt: Prompt, options: SendOptions, run_id: str) -> Prompt:
        """Return the prompt as changed by hooks; the document keeps its text, the model may see another.

        Raises:
            Blocked: A hook blocked the message.
        """
        hooks = self._of(branch, options, run_id)
        if not hooks.is_any("message.user"):
            return prompt
        model = prompt.metadata.get("model")
        facts = {
            "text": prompt.text[:MOST_TEXT],
            "agent": prompt.metadata.get("agent"),
            "model": str(model.get("model_id")) if isinstance(model, Mapping) else None,
            "interactive": options.interactive,
            "metadata": dict(prompt.metadata),
        }
        metadata, text = dict(prompt.metadata), prompt.text
        async for word in hooks.words_about_message(facts):
            if agent := word.changes.get("agent"):
                metadata["agent"] = facts["agent"] = agent
            if model := word.changes.get("model"):
                metadata["model"] = {"provider_id": None, "model_id": model}
                facts["model"] = model
            if (changed := word.changes.get("text", "")).strip():
                text = facts["text"] = changed
        if prompt.message_id:  # a prompt that is sent again has its row already
            return prompt
        made = replace(prompt, metadata=metadata)
        if text != prompt.text and (seen := made.seen_as(text)) is not None:
            branch.say("A hook changed what the model sees of your message")
            return seen
        return made

    async def before_steering(self, branch: LiveBranch, text: str, options: SendOptions, run_id: str) -> str:
        """Return the text of a steering message for the model; raises ``Blocked``."""
        hooks = self._of(branch, options, run_id)
        if not hooks.is_any("message.user"):
            return text
        defaults = {"agent": None, "model": None, "interactive": True, "metadata": dict[str, Any]()}
        facts: dict[str, Any] = {"text": text[:MOST_TEXT], **defaults}
        async for word in hooks.words_about_message(facts):
            if (changed := word.changes.get("text", "")).strip():
                text = facts["text"] = changed
        return text

    async def model_for(self, run: "RunBuilder", model: str, preset: Preset) -> str:
        """Return the model of a run, as changed by hooks."""
        hooks = RunHooks(self, run.branch, run.root, run.run_id, run.options, run.witness)
        if not hooks.is_any("model.resolve"):
            return model
        facts = {"model": model, "preset": preset.name, "backend": preset.backend}
        async for _, word in hooks.words("model.resolve", facts):
            if changed := word.changes.get("model", "").strip():
                facts["model"] = changed
        return facts["model"]

    def context_for(self, run: "RunBuilder") -> Mapping[str, Any]:
        """Return the hooks for the calls of a run."""
        return {"hooks": RunHooks(self, run.branch, run.root, run.run_id, run.options, run.witness)}

    def _run_ended(self, ended: RunEnded) -> None:
        """Call the hooks for the end of a run, in the background."""
        branch, outcome = ended.branch, ended.outcome
        last = branch.conversation.last_run
        hooks = self._of(branch, ended.options, str(last.data["id"]) if last else "")
        if hooks.is_any("run.finished"):
            facts = {
                "reason": outcome.reason,
                "text": outcome.text[:MOST_TEXT],
                "code": outcome.code,
                "message": outcome.message,
            }

            async def tell() -> None:
                async for _ in hooks.words("run.finished", facts):
                    pass

            self._telling.add(task := self.kernel.spawn(tell()))
            task.add_done_callback(self._telling.discard)

    async def close(self) -> None:
        """Wait a moment for the hooks of ended runs, then cancel them."""
        if self._telling:
            for late in (await asyncio.wait(self._telling, timeout=_LAST_S))[1]:
                late.cancel()

    def _of(self, branch: LiveBranch, options: SendOptions, run_id: str) -> "RunHooks":
        root = Path(branch.conversation.session.get("workspace_root") or Path.home())
        return RunHooks(self, branch, root, run_id, options)

    # -- functions of clients ------------------------------------------------------------------------------------

    async def ask(self, client: Sink, facts: Mapping[str, Any]) -> HookAnswer:
        """Call the hook function of a client and return its answer.

        ``{"block": REASON}`` blocks, ``{"error": true, "text": TEXT}`` means that the function failed; all else are
        changes.
        """
        try:
            reply = await self.kernel.feature(EmacsClients).ask(client, "hook", facts, timeout_s=TIMEOUT_S)
        except TooLong as error:
            # A model can make a call of any length: that must not get it past a guard.
            why = str(error)
            return HookAnswer(blocks=why) if facts["event"] == "tool.before" else HookAnswer(problem=why)
        except NoAnswer as error:
            return HookAnswer(problem=str(error))
        return HookAnswer(problem=str(reply.get("text"))) if reply.get("error") else answer_of(reply)

    # -- notices -------------------------------------------------------------------------------------------------

    def say(self, branch: LiveBranch, root: Path, text: str) -> None:
        """Notify the user, once for each text."""
        if (str(root), text) not in self._notices:
            self._notices.add((str(root), text))
            log.warning("%s", text)
            branch.say(text)


@dataclass(frozen=True, slots=True)
class RunHooks:
    """Calls the hooks of one run; for its tool calls see ``tools.spec.CallHooks``."""

    _hooks: Hooks
    branch: LiveBranch
    root: Path  # the workspace
    run_id: str
    options: SendOptions
    witness: RunWitness | None = None

    async def before(
        self, tool: str, args: Mapping[str, Any], action_of: Callable[[Mapping[str, Any]], Action], call_id: str
    ) -> Mapping[str, Any] | None:
        """Return the arguments as changed by hooks, or None; raises ``ToolError`` if one denies the call."""
        if not self.is_any("tool.before"):
            return None
        facts: dict[str, Any] = {
            "tool": tool,
            "input": dict(args),
            "action": str(action_of(args)),
            "call_id": call_id,
        }
        changed = False
        async for source, word in self.words("tool.before", facts, tool):
            if word.blocks is not None:
                if self.witness is not None:
                    self.witness(tool, facts["action"], "deny", f"hook {source}", word.blocks)
                raise ToolError(f"A hook of the user denied this: {word.blocks}")
            if "input" in word.changes:
                facts["input"], changed = word.changes["input"], True
                facts["action"] = str(action_of(facts["input"]))
        return facts["input"] if changed else None

    async def after(
        self, tool: str, args: Mapping[str, Any], text: str, ok: bool, duration_ms: int, call_id: str
    ) -> str:
        """Return the text that hooks append to a result."""
        if not self.is_any("tool.after"):
            return ""
        facts = {
            "tool": tool,
            "input": dict(args),
            "call_id": call_id,
            "ok": ok,
            "output": text[:MOST_TEXT],
            "duration_ms": duration_ms,
        }
        added = []
        async for _, word in self.words("tool.after", facts, tool):
            if word.blocks is not None:
                added.append(word.blocks)
            if more := word.changes.get("append"):
                added.append(more)
        return "\n".join(f"[hook] {each}" for each in added)

    async def words_about_message(self, facts: Mapping[str, Any]) -> AsyncIterator[HookAnswer]:
        """Yield the answer of each hook to a message; raises ``Blocked`` if one blocks it."""
        async for source, word in self.words("message.user", facts):
            if word.blocks is not None:
                raise Blocked(f"The hook {source} blocked this message: {word.blocks}")
            yield word

    async def words(
        self, event: str, facts: Mapping[str, Any], tool: str = ""
    ) -> AsyncIterator[tuple[str, HookAnswer]]:
        """Call the hooks for ``event`` one after the other, and yield name and answer of each.

        Changes that the caller makes to ``facts`` in between are passed to the next hook. Check ``is_any`` first.
        """
        ref = self.branch.ref
        common = {
            "event": event,
            "version": 1,
            "session": ref.session_id,
            "branch": ref.branch_name,
            "branch_dir": str(ref.branch_dir),
            "is_agent": ref.is_agent,
            "root": str(self.root),
            "run": self.run_id,
        }
        async for base, hook in self._programs(event, tool):
            word = await ask_program(hook, {**common, **facts}, base=base, root=self.root, env=self.options.env)
            name = " ".join(hook.command)[:80]
            self._note(event, name, word)
            yield name, word
        emacs = self._hooks.emacs
        for client in () if emacs is None else emacs.with_hook(event, self.branch):
            word = await self._hooks.ask(client, {**common, **facts})
            name = f"function of {getattr(client, 'name', 'Emacs')}"
            self._note(event, name, word)
            yield name, word

    def is_any(self, event: str) -> bool:
        """Return whether there may be a hook for an event."""
        emacs = self._hooks.emacs
        return (
            event in map(attrgetter("event"), self._hooks.kernel.config.hooks)
            or (emacs is not None and bool(emacs.with_hook(event, self.branch)))
            or os.path.isdir(f"{self.root}/.pyagentd")  # noqa: PTH112 - twice for each call of a tool
        )

    async def _programs(self, event: str, tool: str) -> AsyncIterator[tuple[Path, HookSettings]]:
        """Yield the programs for ``event`` with the base of their names: the user's, then a trusted project's."""
        config = self._hooks.kernel.config
        for hook in config.hooks:
            if hook.event == event and hook.is_about(tool):
                yield config.file.parent, hook
        for number in count():
            project = await self._trusted_hooks()  # before each hook, since another may have changed meanwhile
            hooks = [each for each in project.hooks if each.event == event and each.is_about(tool)] if project else []
            if project is not None and number < len(hooks):
                yield project.root, hooks[number]
            if number + 1 >= len(hooks):
                return

    async def _trusted_hooks(self) -> ProjectPrograms | None:
        """Return the project's hooks if the user trusts their current content; else notify why they do not run."""
        project = await asyncio.to_thread(project_hooks, self.root)
        if project is None:
            return None
        if project.error:
            self._hooks.say(self.branch, project.root, f"The project's hooks cannot be used: {project.error}")
        elif project.hash not in self._hooks.kernel.presets.trust:
            self._hooks.say(
                self.branch,
                project.root,
                f"{project.files[0][0]} has hooks that you have not said you trust, or that changed since: they do "
                "not run. Read them, then: pyagentd hooks --trust (in Emacs M-x pyagentd-list, hooks)",
            )
        else:
            return project
        return None

    def _note(self, event: str, name: str, word: HookAnswer) -> None:
        """Log a hook's answer, and notify the user of failures."""
        effect = "blocks" if word.blocks is not None else "changes" if word.changes else word.problem or "nothing"
        log.info("hook %s for %s of %s: %s (%d ms)", name, event, self.branch.ref.name, effect, word.duration_ms)
        if word.problem:
            self._hooks.say(self.branch, self.root, f"The hook {name} for {event} failed: {word.problem}")
