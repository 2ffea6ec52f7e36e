"""Records requests to models: ``requests.jsonl`` for programs, two Org files for people."""

import copy
import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any

from pyagentd import regularfile
from pyagentd.errors import NotFound, StoreError
from pyagentd.messages import Body
from pyagentd.reader import with_texts
from pyagentd.store import atomic, paths
from pyagentd.store.document.render import writable

# The readable logs of a branch: ``tools.org`` and ``system-prompts.org``, which nothing but a person ever reads.
#
# Append-only Org text. They repeat what ``messages.jsonl`` and ``preset.md`` own, so a log that cannot be written is
# a warning and never more. Lines that Org would take for its own are quoted with a comma, as Org itself does.


log = logging.getLogger(__name__)

LONGEST = 20_000  # characters of a result, or of one argument, that are repeated here

_ORG_SYNTAX = re.compile(r"^([ \t]*)(,*(?:\*|#\+))", re.MULTILINE)
_QUOTED = re.compile(r"^([ \t]*),(,*(?:\*|#\+))", re.MULTILINE)
_LAST_PROMPT = re.compile(
    r"^\*\* New Prompt\n\n?#\+begin_example\n(.*?)\n?^#\+end_example$", re.MULTILINE | re.DOTALL
)
_HEADING = "* System Prompt Change: "


class OrgLog:
    """The logs of the branch in ``branch_dir``."""

    def __init__(self, branch_dir: Path) -> None:
        self._tools = paths.tools_log_file(branch_dir)
        self._prompts = paths.prompts_log_file(branch_dir)
        self._due: list[tuple[Mapping[str, Any], int]] = []  # calls that are not written yet
        self._taking = Lock()
        self._added: str | None = None  # the system prompt that is known to be the last one

    def tool(self, data: Mapping[str, Any], now_ms: int) -> None:
        """Note a finished call for ``flush``; ``data`` is the part in AI SDK form, ``now_ms`` when it finished."""
        self._due.append((data, now_ms))

    def flush(self) -> None:
        """Add the calls that were noted; from any thread."""
        with self._taking:
            due, self._due = self._due, []
        if due:
            _append(self._tools, "".join(tool_entry(data, _time(now_ms)) for data, now_ms in due))

    def system_prompt(self, text: str, now_ms: int) -> None:
        """Add the system prompt of a run, unless it is the one that was added last."""
        if text == self._added:
            return
        try:
            known = regularfile.read_bytes(self._prompts, limit=regularfile.LOG).decode("utf-8", "replace")
        except FileNotFoundError:
            known = ""
        except OSError as error:
            log.warning("cannot read %s: %s", self._prompts, error.strerror)
            return
        previous = last_prompt(known)
        if previous != writable(text):
            _append(self._prompts, prompt_entry(text, previous, _time(now_ms)))
        self._added = text


def tool_entry(data: Mapping[str, Any], time: str) -> str:
    """Return a call with its result as an Org entry; ``time`` as ``Tue Jan 20 19:26:03 2026``."""
    failed = data["state"] == "output-error"
    result = str(data.get("errorText" if failed else "output", ""))
    where = data.get("metadata", {}).get("output_path")
    properties = {"TIMESTAMP": time, "TOOL_CALL_ID": data["toolCallId"], **({"STATE": "error"} if failed else {})}
    shown = with_texts(data["input"], lambda text: _shorten(text, None))
    arguments = json.dumps(shown, ensure_ascii=False, indent=2)
    name = str(data["type"]).removeprefix("tool-")
    return (
        f"* Tool Call: {_one_line(name)}\n{_drawer(properties)}\n"
        f"** Arguments\n#+begin_src json\n{_entry_body(arguments)}\n#+end_src\n\n"
        f"** Result\n{_example(_shorten(result, where))}\n\n"
    )


def prompt_entry(text: str, previous: str | None, time: str) -> str:
    """Return a system prompt, and the one before it if there was one, as an Org entry."""
    before = f"** Previous Prompt\n{_example(previous)}\n\n" if previous is not None else ""
    return f"{_HEADING}{time}\n{_drawer({'TIMESTAMP': time})}\n{before}** New Prompt\n{_example(text)}\n\n"


def last_prompt(content: str) -> str | None:
    """Return the system prompt that was added last to a log with this ``content``; None when there is none."""
    start = content.rfind(f"\n{_HEADING}") + 1
    found = _LAST_PROMPT.search(content, start)
    return _QUOTED.sub(r"\1\2", found[1]) if found else None


def _append(path: Path, text: str) -> None:
    try:
        atomic.append_lines(path, writable(text).encode())
    except StoreError as error:
        log.warning("cannot write the log of tool calls and system prompts: %s", error)


def _time(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000).astimezone().strftime("%a %b %e %H:%M:%S %Y")


def _drawer(properties: Mapping[str, str]) -> str:
    lines = [":PROPERTIES:", *(f":{name}: {_one_line(value)}" for name, value in properties.items()), ":END:"]
    return "".join(f"  {line}\n" for line in lines)


def _example(text: str) -> str:
    return f"#+begin_example\n{_entry_body(text)}\n#+end_example"


def _entry_body(text: str) -> str:
    return _ORG_SYNTAX.sub(r"\1,\2", text) if "*" in text or "#+" in text else text


def _one_line(text: str) -> str:
    return " ".join(str(text).split())


def _shorten(text: str, where: object) -> str:
    if where:
        text = text[:LONGEST]
        return f"{text}\n[The whole output is in {where}]" if str(where) not in text else text
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n[{len(text) - LONGEST} more characters]"


# ``requests.jsonl``: what every model request of a branch held, as it was sent, and how it was answered.
#
# Append-only lines beside ``messages.jsonl``, for people who ask why; nothing depends on them, so a line that cannot
# be written is a warning and costs that request only. A request names the one it continues (``base``) and holds the
# messages after those that are ``same``; system prompt and tools are written once and named by their digest.
# Messages are kept without breakpoints of the provider's cache, which move; ``marks`` says where they were. Headers,
# and with them keys, never come here.
#
# ===========  ===========================================================================================
# type         fields
# ===========  ===========================================================================================
# blob         {digest, data}: a system prompt or a list of tools
# request      {id, run_id, step, attempt, purpose, at, head, base, same, messages, marks}: ``at`` epoch ms;
#              ``key`` where messages were sent under another name
# answer       {id, run_id, step, duration_ms, first_token_ms, attempts, retries, usage, calls, stop_reason, error}:
#              the end of ``id``; with ``count``, ``chain`` and ``known`` a later writer sees what it may continue
# ===========  ===========================================================================================
#
# Beyond ``LARGEST`` bytes the file becomes ``requests.1.jsonl``, in the place of the last one of that name, and a
# new one begins with a whole request.

LARGEST = 32 << 20
_TAIL = 64 << 10  # holds an answer line, unless its error is a novel
_BLOBS = ("system", "instructions", "tools")

as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # as the bytes that were sent had it


class TraceWriter:
    """Writes the requests of one branch, run after run."""

    def __init__(self, branch_dir: Path) -> None:
        self._path = paths.requests_file(branch_dir)
        self._size = -1  # bytes of the file as it was left; it was not looked at yet
        self._run_id = ""  # of the last request
        self._step = 0  # ... and its number
        self._id = ""  # of the request the next one can continue
        self._last: Mapping[str, Any] = {}  # an earlier writer's last answer
        self._messages: Sequence[bytes] = ()  # the last request's, and those that were added to them since
        self._count = 0  # of the last request
        self._chain = hashlib.sha256()  # of these
        self._known: dict[str, str] = {}  # digests of what the file has, by their place in the head
        self._blobs: dict[str, tuple[bytes, str]] = {}  # what the last request had in its head, with its digest
        self._problem = ""

    def request(self, body: Body, *, run_id: str, attempt: int, purpose: str, at_ms: int) -> None:
        """Add a request, which the next ones may continue.

        The requests of a run are numbered; those that an earlier writer has traced count.

        Args:
            body: As it is sent.
            run_id: The run.
            attempt: In which form, from 1; one that is sent again as it was is not added again.
            purpose: "step", or another word for what is not a step of the run.
            at_ms: When, epoch.
        """
        if self._size < 0:
            self._begin()
        if attempt == 1:
            self._step = self._step + 1 if run_id == self._run_id else 1
            self._run_id = run_id
        try:
            # Nothing is continued where the file is not as it was left; where it is too large, another one begins.
            try:
                size = self._path.stat().st_size
            except FileNotFoundError:
                size = 0
            if size >= LARGEST:
                atomic.replace(self._path, paths.old_requests_file(self._path.parent))
                size = 0
            if size != self._size:
                self._forget()
            self._size = size
            lines: list[bytes] = []
            head: list[bytes] = []
            for name, data in body.head.items():
                if name in _BLOBS:
                    known = self._blobs.get(name)
                    if known is None or known[0] is not data:
                        self._blobs[name] = known = (data, hashlib.sha256(data).hexdigest())
                    digest = known[1]
                    if self._known.get(name) != digest:
                        lines.append(b'{"type":"blob","digest":"%s","data":%s}' % (digest.encode(), data))
                        self._known[name] = digest
                    data = b'{"digest":"%s"}' % digest.encode()
                head.append(b'"%s":%s' % (name.encode(), data))
            # Which request this one continues, and how many messages are the same.
            base, same = self._id or None, 0
            if self._last:  # an earlier writer's: all of it, or none
                base, count = str(self._last["id"]), self._last["count"]
                chain = hashlib.sha256(b"".join(body.messages[:count])).hexdigest()
                if count <= body.count and chain == self._last["chain"]:
                    same = count
            elif body.messages is self._messages:
                same = self._count
            else:
                while same < min(self._count, body.count) and body.messages[same] == self._messages[same]:
                    same += 1
            if same != self._count:  # what was said is not only extended
                self._chain, self._count = hashlib.sha256(), 0
            self._chain.update(b"".join(body.messages[self._count : body.count]))
            self._messages, self._count, self._last = body.messages, body.count, {}
            self._id = f"{run_id}/{purpose}/{self._step}/{attempt}"
            facts = {
                "type": "request",
                "id": self._id,
                "run_id": run_id,
                "step": self._step,
                "attempt": attempt,
                "purpose": purpose,
                "at": at_ms,
                "base": base if same else None,
                "same": same,
                **({} if body.key == "messages" else {"key": body.key}),
                "marks": [
                    [number, mark.block, mark.value] for number, mark in body.marked.items() if mark.block >= 0
                ],
            }
            messages = b",".join(body.messages[same : body.count])
            lines.append(
                b'%s,"head":{%s},"messages":[%s]}' % (as_json(facts).encode()[:-1], b",".join(head), messages)
            )
            self._write(lines)
            self._problem = ""
        except (StoreError, OSError) as error:
            self._forget()
            if str(error) != self._problem:
                log.warning("a request could not be added to the trace: %s", error)
            self._problem = str(error)

    def answer(self, facts: Mapping[str, Any]) -> None:
        """Add how the last request was answered; see the module's table for ``facts``."""
        if not self._id:
            return
        told = {"type": "answer", "id": self._id, "run_id": self._run_id, "step": self._step, **facts}
        told |= {"count": self._count, "chain": self._chain.hexdigest(), "known": self._known}
        try:
            self._write([as_json(told).encode("utf-8", "replace")])
        except (StoreError, OSError) as error:
            log.warning("an answer could not be added to the trace: %s", error)

    # -- the file ----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """See where an earlier writer ended."""
        with suppress(OSError):
            self._size = self._path.stat().st_size
        last = _last_line(self._path)
        if last is not None and last["type"] == "answer" and last.keys() >= {*_WRITERS}:
            self._last, self._known = last, dict(last["known"])
            self._run_id, self._step = str(last["run_id"]), int(last["step"])

    def _forget(self) -> None:
        """Continue nothing."""
        self._id, self._last, self._known = "", {}, {}
        self._messages, self._count, self._chain = (), 0, hashlib.sha256()

    def _write(self, lines: Sequence[bytes]) -> None:
        data = b"\n".join((*lines, b""))
        atomic.append_lines(self._path, data)
        self._size += len(data)


def _last_line(path: Path) -> dict[str, Any] | None:
    """Return the last line of the file if it is whole and short."""
    try:
        tail = regularfile.read_end(path, _TAIL, limit=regularfile.LOG)
    except OSError:
        return None
    if not tail.endswith(b"\n"):
        return None
    return line_of(tail[:-1].rpartition(b"\n")[2])


def line_of(line: bytes) -> dict[str, Any] | None:
    """Return what a line says, None when it is damaged."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and "type" in value else None


# Reading ``requests.jsonl``: the steps of a branch, and the exact request of each.
#
# Lines that are damaged or torn are passed over. A request whose beginning is gone, because the file that held it
# was replaced (``trace.LARGEST``), is listed without its messages.


@dataclass(slots=True, kw_only=True)
class TracedStep:
    """One request and its answer; of a request that was sent again in another form, the last one."""

    id: str
    run_id: str
    step: int  # within the run, from 1
    purpose: str
    at: int  # epoch ms
    head: Mapping[str, Any]  # everything but the messages, as sent
    same: int  # how many messages the request before had already
    messages: list[dict[str, Any]] | None  # without breakpoints; None: they are gone
    marks: list[tuple[int, int, Any]]
    key: str = "messages"  # under which they were sent
    answer: Mapping[str, Any] = field(default_factory=dict)  # see ``trace``; {} when there is none

    @property
    def body(self) -> dict[str, Any]:
        """The request as it was sent.

        Raises:
            NotFound: Its beginning was traced too long ago.
        """
        if self.messages is None:
            raise NotFound(f"Of step {self.step} of {self.run_id} only the end is kept", hint="Look at a later one")
        messages = list(self.messages)
        for number, block, value in self.marks:
            messages[number] = copy.deepcopy(messages[number])
            messages[number]["content"][block]["cache_control"] = value
        return {**self.head, self.key: messages}


def read_trace(branch_dir: Path) -> list[TracedStep]:
    """Return the traced steps of a branch, oldest first.

    Raises:
        StoreError: The disk refused; a missing file is an empty trace.
    """
    steps: dict[tuple[str, str, int], TracedStep] = {}
    by_id: dict[str, TracedStep] = {}
    blobs: dict[str, Any] = {}
    for line in _lines(branch_dir):
        match line:
            case {"type": "blob", "digest": str(digest), "data": data}:
                blobs[digest] = data
            case {"type": "request"}:
                with suppress(KeyError, TypeError, AttributeError):
                    step = _step(line, by_id, blobs)
                    by_id[step.id] = steps[step.run_id, step.purpose, step.step] = step
            case {"type": "answer", "id": str(id)} if id in by_id:
                by_id[id].answer = {key: value for key, value in line.items() if key not in _WRITERS}
    return list(steps.values())


_WRITERS = ("type", "id", "run_id", "step", "count", "chain", "known")


def _step(line: Mapping[str, Any], before: Mapping[str, TracedStep], blobs: Mapping[str, Any]) -> TracedStep:
    messages: list[dict[str, Any]] | None = list(line["messages"])
    base, same = line["base"], line["same"]
    if base is not None:
        known = before[base].messages if base in before else None
        messages = None if known is None else [*known[:same], *line["messages"]]
    head = {
        name: blobs.get(value["digest"], value) if name in _BLOBS and isinstance(value, dict) else value
        for name, value in line["head"].items()
    }
    return TracedStep(
        id=line["id"],
        run_id=line["run_id"],
        step=line["step"],
        purpose=line["purpose"],
        at=line["at"],
        head=head,
        same=same,
        messages=messages,
        marks=[tuple(mark) for mark in line["marks"]],
        key=str(line.get("key", "messages")),
    )


def _lines(branch_dir: Path) -> Iterator[dict[str, Any]]:
    for path in (paths.old_requests_file(branch_dir), paths.requests_file(branch_dir)):
        try:
            content = regularfile.read_bytes(path, limit=regularfile.LOG)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        for line in content.split(b"\n"):
            if (value := line_of(line)) is not None:
                yield value
