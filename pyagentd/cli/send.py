"""``pyagentd send`` and ``ask``: send a message, and print the answer as it arrives."""

import asyncio
import json
import mimetypes
import os
import re
import shlex
import stat
import sys
import termios
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from itertools import chain, count
from pathlib import Path
from typing import Any

import click

from pyagentd import regularfile
from pyagentd.cli.follow import (
    FollowEnd,
    Follower,
    Interrupts,
    JsonView,
    TextView,
    View,
    event_object,
    replay,
)
from pyagentd.cli.link import (
    branch_of,
    complete_agent,
    complete_model,
    complete_session,
    daemon,
    json_text,
    run_environment,
    session_link,
    watch,
    watched_run,
)
from pyagentd.cli.output import (
    AmountRange,
    Command,
    ExitCode,
    Form,
    asking_options,
    dim,
    json_option,
    note,
    preset_option,
    print_json,
    print_list,
    print_reply,
    report,
    stream_options,
    strict_option,
    text_for,
    workplace_option,
)
from pyagentd.cli.sessions import sessions_known
from pyagentd.errors import BadRequest, NotFound, PyagentdError, WireError
from pyagentd.events import Event, one_line
from pyagentd.runtime.status import tool_event
from pyagentd.store.attachments import keep_file, link_to, media_type, type_of
from pyagentd.store.document.text import gptel_messages
from pyagentd.store.export.importing import is_org, read_org
from pyagentd.store.journal import row_of
from pyagentd.store.metadata import workspace_root
from pyagentd.store.paths import files_dir, journal_file
from pyagentd.wire.client import DaemonClient

_SLASH = re.compile(r"/[A-Za-z][\w:.-]*(?!\S)")
_LONGEST_PROMPT = 900_000  # bytes; longer text belongs in a file
_LARGEST_FILE = 50_000_000  # bytes
_STDIN = Path("-")
_MENTION = re.compile(r"(?<![\w@/.])@([^\s\"'<>`]+)")
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # characters not allowed in the name of a linked file
_PATIENCE_S = 3.0  # after this time a note says that we wait for stdin
_LATE_S = 5.0  # time to read the result of a run that has timed out
NAME = 60  # characters of the prompt in the name of a session
_SHOWN_DENIED = 3
_LONGEST_ACTION = 80  # characters


class RunFailed(PyagentdError):
    """The run ended with an error or was aborted."""

    code = "run-failed"


class StillRunning(PyagentdError):
    """Waiting for the run timed out; the run goes on."""

    code = "timeout"


def _message_options(command: Command) -> Command:
    agent = click.option(
        "--agent",
        metavar="NAME",
        shell_complete=complete_agent,
        help="Agent from this message on: a preset, such as plan or build.",
    )
    model = click.option(
        "--model",
        metavar="NAME",
        shell_complete=complete_model,
        help="Model from this message on, [BACKEND/]NAME.",
    )
    files = click.option(
        "--attach",
        "files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
        metavar="FILE",
        help="Attach a copy of this file, or of standard input with -. May be repeated.",
    )
    return agent(model(files(command)))


_timeout = click.option(
    "--timeout", type=AmountRange(min=0), metavar="SECONDS", help="Stop waiting after this; the run goes on."
)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("text", required=False)
@click.option("--wait/--no-wait", default=True, help="Wait until the run ends (default), or return at once.")
@_timeout
@asking_options
@strict_option
@click.option("--steer", is_flag=True, help="Steer the current run: send it at its next step.")
@_message_options
@click.option("--command", "commanded", is_flag=True, help="Run a slash command from stdin or a script.")
@click.option("--id", "message_id", metavar="ID", help="The message's id; a message with the same id is sent once.")
@stream_options
def send(session: str, text: str | None, wait: bool, form: Form, **wishes: Any) -> int:
    """Send TEXT to SESSION and follow the answer.

    Text on stdin is added below TEXT; with TEXT "-" it is the message.
    During a run the message is queued, unless you --steer the run.
    Slash commands such as /status or /help are answered at once and never sent to a model. From stdin they need
    --command; so do, in a script, those that change something.
    On a terminal you are asked for approvals; elsewhere a call that needs one is denied unless --allow covers it.
    Ctrl-C stops following the run, a second one aborts it.
    """
    message = prompt_text(text, wishes["files"])
    human = is_human(form, headless=wishes["headless"])
    with daemon(human=human) as link:
        commanding = "always" if wishes["commanded"] else "never" if text in (None, "-") else "human"
        place = branch_of(link, session)
        wishes["files"] += tuple(mentioned_files(text or "", Path(workspace_root(place) or ".")))
        return _send(link, place, session, message, form, human, wait, commanding, wishes)


@click.command()
@click.argument("text", required=False)
@click.option("--continue", "-c", "goes_on", is_flag=True, help="Continue the last session of this directory.")
@preset_option
@workplace_option
@_timeout
@asking_options
@strict_option
@_message_options
@stream_options
def ask(
    text: str | None,
    goes_on: bool,
    preset: str | None,
    root: Path,
    form: Form,
    **wishes: Any,
) -> int:
    """Ask TEXT in a new session and print the answer.

    Text on stdin is added below TEXT. The session is kept: --continue continues it, `pyagentd sessions` lists it.
    Where stdout is a pipe or a file, only the answer is written there.
    """
    if goes_on and preset:
        raise click.UsageError("--preset is for new sessions: leave it out with --continue, or give --agent")
    message = prompt_text(text, wishes["files"])
    wishes["files"] += tuple(mentioned_files(text or "", root.resolve()))
    human = is_human(form, headless=wishes["headless"])
    with daemon(human=human) as link:
        if goes_on:
            branch_dir, session = last_session(link, root.resolve())
        else:
            name = " ".join(message.split())[:NAME]
            made = link.call("create-session", name=name, preset=preset, root=str(root.resolve()))
            branch_dir, session = Path(made["branch_dir"]), str(made["session_id"])
        wishes |= {"steer": False, "message_id": None}
        wishes["said"] = f"session {session}; go on with it: pyagentd ask --continue"
        try:
            return _send(link, branch_dir, session, message, form, human, True, "never", wishes)
        except WireError:  # the daemon may have received the message
            raise
        except PyagentdError:
            if not goes_on and not has_messages(branch_dir):
                with suppress(PyagentdError):  # report the first error
                    link.call("delete", branch=str(branch_dir), what="session")
            raise


def is_human(form: Form, *, headless: bool) -> bool:
    """Return whether a human at the terminal can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not headless and form == "text"


def prompt_text(text: str | None, files: Sequence[Path] = ()) -> str:
    """Return ``text`` and the text piped into stdin as one prompt; stdin is left out if it is one of ``files``."""
    if _STDIN in files and text == "-":
        raise click.UsageError("stdin can be the message or an attachment, not both")
    piped = "" if _STDIN in files else sys.stdin.read() if text == "-" else _piped_text()
    message = "\n\n".join(part for part in ("" if text in (None, "-") else str(text), piped) if part.strip())
    if not message:
        raise click.UsageError("TEXT is empty" if text is not None else "Missing argument 'TEXT'")
    check_length(message, hint="send it as a file: --attach FILE")
    return message


def check_length(message: str, *, hint: str) -> None:
    """Raise ``BadRequest`` if a message is too long for a call to the daemon; ``hint`` says what to do instead."""
    if (size := len(message.encode("utf-8", "surrogateescape"))) > _LONGEST_PROMPT:
        raise BadRequest(f"A message of {size:,} bytes", hint=f"Above 900 kB, {hint}")


def _piped_text() -> str:
    """Return the text piped into stdin; "" if stdin is a terminal, a device or a socket."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return ""
    waiting = threading.Timer(_PATIENCE_S, note, ("waiting for the end of stdin; </dev/null leaves it out",))
    waiting.daemon = True
    waiting.start()
    try:
        return sys.stdin.read()
    finally:
        waiting.cancel()


def last_session(link: DaemonClient, root: Path) -> tuple[Path, str]:
    """Return the branch and the id of the last written session of a directory.

    A session without messages, such as a refused prompt leaves, is chosen only if there is no other.
    """
    known = (each for each in sessions_known(link) if each["current"] and not each["agent"])
    latest = sorted(known, key=_written, reverse=True)
    here = (each for each in latest if workspace_root(Path(each["branch"])) == str(root))
    if (first := next(here, None)) is None:
        raise NotFound(f"{root} has no session yet", hint="Leave out --continue")
    last = next((each for each in chain([first], here) if has_messages(Path(each["branch"]))), first)
    return Path(last["branch"]), str(last["session_id"])


def has_messages(branch_dir: Path) -> bool:
    """Return whether the log of a branch has a message."""
    try:
        with regularfile.open_binary(journal_file(branch_dir), limit=regularfile.LOG) as log:
            return any(row is not None and row.type == "message" for row in map(row_of, log))
    except OSError:
        return False


def _written(session: dict[str, Any]) -> tuple[str, int]:
    """Return a session's time of last change, in seconds, and that of its log, to order within a second."""
    try:
        return str(session["updated"]), journal_file(Path(session["branch"])).stat().st_mtime_ns
    except OSError:
        return str(session["updated"]), 0


def with_files(message: str, files: Iterable[Path], branch_dir: Path) -> str:
    """Copy files into the branch, and return the message with links to them, which show pictures to the model.

    The file "-" is stdin.

    Raises:
        BadRequest: A file cannot be read or is too large, or stdin is empty.
    """
    links = []
    for file in files:
        try:
            with nullcontext(sys.stdin.buffer) if file == _STDIN else file.open("rb") as source:  # a pipe, perhaps
                data = source.read(_LARGEST_FILE + 1)
        except OSError as error:  # one of reading does not name the file
            raise BadRequest(f"{file} cannot be read: {error.strerror}") from error
        if len(data) > _LARGEST_FILE:
            raise BadRequest(f"{file} has more than 50 MB", hint="Name its path in the message instead")
        if file == _STDIN and not data:
            raise BadRequest("stdin is empty: there is nothing to attach")
        kind = media_type(data)
        given = file.name if file != _STDIN else f"stdin{mimetypes.guess_extension(kind) or '.txt'}"
        name = Path(_UNFIT.sub("_", given))
        names = (f"{name.stem}{f'-{number}' if number else ''}{name.suffix}" for number in count())
        free = next(each for each in names if not (files_dir(branch_dir) / each).exists())
        keep_file(branch_dir, free, data)
        links.append(link_to(free, free, shown=kind.startswith("image/")))
    return "\n\n".join([message, *links])


def mentioned_files(text: str, root: Path) -> list[Path]:
    """Return the pictures and documents that the typed ``text`` names as @path, relative to ``root``."""
    names = (name.rstrip(".,;:!?)") for name in _MENTION.findall(text))
    found = (root / (Path.home() / name[2:] if name.startswith("~/") else name) for name in names)
    return [file for file in dict.fromkeys(found) if os.path.isfile(file) and type_of(file)]  # noqa: PTH113  # any name


def _send(
    link: DaemonClient,
    branch_dir: Path,
    session: str,
    message: str,
    form: Form,
    human: bool,
    wait: bool,
    commanding: str,
    given: Mapping[str, Any],
) -> int:
    """Send a message, follow its run, and return the exit status."""
    message = with_files(message, given["files"], branch_dir)
    state = watch(link, branch_dir)
    branch, model, steer = state["branch"], given["model"], given["steer"]
    env = run_environment(os.environ, (model or "").rpartition("/")[0] or state["settings"]["backend"])
    wishes: dict[str, Any] = {"allow": given["allow"], "steer": steer, "agent": given["agent"], "model": model}
    wishes |= {"id": given["message_id"], "command": commanding}
    is_slash = _SLASH.match(message.lstrip()) is not None
    is_command = is_slash and commanding != "never"  # some commands call a model
    if is_slash and not is_command and form == "text":
        note("sent as a message: what comes from stdin is a slash command only with --command")
    how: dict[str, Any] = {"human": human, "wait": wait, "strict": given["strict"], "timeout": given["timeout"]}
    # The reply to a message is immediate; that to a command may take long, and Ctrl-C stops waiting for it.
    with nullcontext() if is_command else Interrupts():
        sent = link.call("prompt", branch=branch, text=message, env=env, **wishes)
        if (notice := given.get("said")) and sys.stderr.isatty() and form == "text":
            note(notice)
        if command := sent.get("command"):
            goes_on = wait and command["began"]  # a compaction that must end before the next message
            if form != "text" or not goes_on:  # otherwise the answer arrives as events
                status = _print_command(command, form != "text")
            if sent["ended"] and not goes_on:  # otherwise it sent a message to the model
                return status
            sent = {**sent, "run": goes_on, "ended": None} if goes_on else sent
        if form == "text":  # in the other forms they are events
            for line in state.get("notes") or ():
                note(line)
        return follow_sent(link, branch, session, sent, form, steer=steer, notes=state.get("notes") or (), **how)


def follow_sent(
    link: DaemonClient,
    branch: str,
    session: str,
    sent: Mapping[str, Any],
    form: Form,
    *,
    human: bool,
    wait: bool,
    strict: bool = False,
    timeout: float | None = None,
    steer: bool = False,
    notes: Collection[str] = (),
) -> ExitCode:
    """Follow the run that the reply ``sent`` began or queued; print it and return the exit status.

    ``link`` is attached to ``branch``; ``session`` is the user's name for it. Without ``wait`` only print the reply.
    ``notes`` are notices older than the run: printed in the form "events", otherwise known to the user.
    """
    if not wait:
        print_reply(sent, sent["run"] or sent["message"], as_json=form != "text")
        return ExitCode.DONE
    view = TextView(notes) if form == "text" else JsonView() if form == "events" else View()
    for line in notes if form == "events" else ():
        view.show(Event("notice", branch, 0, ({"text": line},)))
    queued = sent["message"] if sent.get("queued") else None
    if queued and form == "text":
        note("it waits for the run in flight" if not steer else "the run in flight reads it at its next step")
    with Interrupts() as interrupts:
        if ended := sent.get("ended"):
            if ended != "canceled" and form == "text":
                note(f"it was sent before, and answered: pyagentd show {session}")
            ending = FollowEnd(ended)
        else:
            following = Follower(link, branch, sent["run"], view, human=human, queued=queued, seq=sent["seq"])
            ending = following.follow(timeout)
        view.message_id = sent.get("message") or view.message_id
        status = conclude(ending, session, form != "text")
        if form != "text":
            # If the daemon hangs, the end of the wait was reported already.
            with suppress(WireError) if ending.reason == "timeout" else nullcontext():
                print_json(_result(link, branch, session, view, ending))
        elif view.denied:
            note(denied_note(view.denied))
    return exit_status(interrupts, ExitCode.FAILED if strict and view.denied else status)


def exit_status(interrupts: Interrupts, status: ExitCode) -> ExitCode:
    """Return the exit code after following a run: ``status``, unless the user pressed Ctrl-C."""
    return ExitCode.INTERRUPTED if interrupts.count else status


def denied_note(denied: Sequence[Mapping[str, Any]]) -> str:
    """Return the note at the end of a run about calls that were denied because no human could be asked."""
    calls = "; ".join(_denied_call(each) for each in denied[:_SHOWN_DENIED])
    more = f" and {len(denied) - _SHOWN_DENIED} more" if len(denied) > _SHOWN_DENIED else ""
    number = "1 tool call was" if len(denied) == 1 else f"{len(denied)} tool calls were"
    beforehand = shlex.quote(re.escape(str(denied[0]["action"])))
    return (
        f"{number} denied, because nobody could be asked: {calls}{more}. "
        f"Allow it beforehand with --allow {beforehand}, or send from a terminal"
    )


def _denied_call(call: Mapping[str, Any]) -> str:
    where = f" (in {call['agent']})" if call.get("agent") else ""
    return f"{str(call['action']).removeprefix('tool:')[:_LONGEST_ACTION]}{where}"


def _result(link: DaemonClient, branch: str, session: str, view: View, ending: FollowEnd) -> dict[str, Any]:
    """Return a run as ``--json`` prints it: its answer, its usage, and the outcome of each tool call."""
    late = {"timeout": _LATE_S} if ending.reason == "timeout" else {}
    text = json_text(link.call("show", **late, branch=branch, message=view.message_id or ""))
    texts: list[str] = []
    tools: list[dict[str, Any]] = []
    usage: Counter[str] = Counter()
    model = None
    for each in json.loads(text)["messages"]:
        metadata = each["message"].get("metadata_json") or {}
        usage.update(metadata.get("usage") or {})
        model = (metadata.get("model") or {}).get("model_id") or model
        for part in each["parts"]:
            data = part.get("data_json") or {}
            if part.get("type") == "text" and data.get("text"):
                texts.append(data["text"])
            elif (call := tool_event(part)) is not None:
                tools.append(call)
    return {
        "kind": "result",
        "session": session,
        "branch": branch,
        "message": view.message_id,
        "reason": ending.reason,
        "error": ending.message or None,
        "answer": "\n\n".join(texts),
        "model": model,
        "usage": dict(usage),
        "tools": tools,
        "denied": [dict(each) for each in view.denied],
    }


def _print_command(command: Mapping[str, Any], as_json: bool) -> ExitCode:
    if as_json:
        data = json.loads(command["json"])
        print_json({"kind": "command", "name": command["name"], "text": command["text"], "data": data})
    elif command["code"]:
        note(command["text"])
    else:
        click.echo(text_for(command["text"], sys.stdout))
    return ExitCode.FAILED if command["code"] else ExitCode.DONE


def conclude(ending: FollowEnd, session: str, as_json: bool) -> ExitCode:
    """Report how following a run ended, if that is not evident, and return the exit status."""
    match ending.reason:
        case "done":
            return ExitCode.DONE
        case "detached":
            note(f"see it with: pyagentd show {session}; stop it with: pyagentd abort {session}")
        case "timeout":
            report(StillRunning(ending.message), as_json=as_json)
        case "canceled":
            report(RunFailed("The message was taken back"), as_json=as_json)
        case "aborted":
            report(RunFailed("The run was aborted"), as_json=as_json)
        case _:
            report(RunFailed(ending.message or f"The run ended: {ending.reason}"), as_json=as_json)
    return ExitCode.FAILED


# ``pyagentd chat``: a conversation on the terminal, see ``chat``.


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("--continue", "-c", "goes_on", is_flag=True, help="Continue the last session of this directory.")
@click.option("--resume", "-r", "picks", is_flag=True, help="Pick the session to continue.")
@preset_option
@workplace_option
def chat(session: str | None, goes_on: bool, picks: bool, preset: str | None, root: Path) -> ExitCode:
    """Chat in SESSION, or in a new one.

    Enter sends, Alt-Enter begins a new line, Tab completes @files and /commands, the arrow keys bring back what you
    sent before. Ctrl-C interrupts the run, twice leaves; Ctrl-D leaves too. A run goes on when you leave, and the
    same session can be open in Emacs.
    """
    if sum(map(bool, (session, goes_on, picks))) > 1:
        raise click.UsageError("SESSION, --continue and --resume exclude each other")
    if preset and (session or goes_on or picks):
        raise click.UsageError("--preset is for new sessions")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadRequest("A chat needs a terminal", hint='From a script: pyagentd send SESSION "…"')
    if os.environ.get("TERM") in ("dumb", "unknown"):
        raise BadRequest(
            "A chat redraws its questions, which this terminal cannot show (TERM=dumb)",
            hint='In Emacs: M-x pyagentd-session; line by line: pyagentd send SESSION "…"',
        )
    place = None
    with _type_ahead():  # for as long as what a chat needs is loaded
        chats: Any = import_module("pyagentd.cli.chat")
        if session or goes_on or picks:
            with daemon(human=True) as link:
                if picks:
                    place = chats.pick_session(sessions_known(link), root.resolve())
                else:
                    place = branch_of(link, session) if session else last_session(link, root.resolve())[0]
            if place is None:
                return ExitCode.FAILED
        status: ExitCode = asyncio.run(chats.Chat(place, preset=preset, root=root.resolve()).talk())
        return status


@contextmanager
def _type_ahead() -> Iterator[None]:
    """Buffer keys until the input line is ready: the terminal neither echoes nor edits them. Ctrl-C still ends."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    modes = termios.tcgetattr(fd)
    modes[0] &= ~termios.ICRNL
    modes[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    termios.tcsetattr(fd, termios.TCSANOW, modes)
    try:
        yield
    finally:
        with suppress(termios.error):  # hung up
            termios.tcsetattr(fd, termios.TCSANOW, before)


_QUIET = ("idle", "error")


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "--from",
    "after",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Start after the event with this seq (default: 0 with --json, else the current answer).",
)
@click.option("--until-idle", is_flag=True, help="Exit when nothing is running or queued.")
@json_option
def attach(session: str, after: int | None, until_idle: bool, as_json: bool) -> int:
    """Show SESSION from the beginning, or from SEQ, then follow it until Ctrl-C.

    With --json each event is a line. Pass its "seq" to --from to resume after it; a seq of 0 is the current state.
    """
    human = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    with daemon(human=human) as link:
        branch_dir = branch_of(link, session)
        view: View = _AttachedView() if as_json else _Text()
        begin = 0 if after is None and as_json else after
        following = _SessionFollower(link, branch_dir, view, human=human, until_idle=until_idle, after=begin)
        ending = following.attach()
    if ending.reason == "error" and not as_json:
        note(ending.message)
    if ending.reason == "detached":
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED if ending.reason == "error" and until_idle else ExitCode.DONE


class _Text(TextView):
    """Prints the answers as they arrive, each below its prompt, which another client may have sent."""

    def show(self, event: Event) -> None:
        """Print what ``event`` adds."""
        match event.kind, event.args:
            case ("prompt", (str() as text, *_)) | ("fired", ({"text": str() as text},)):
                self.pause()
                print(dim(text_for(f"› {text}", sys.stdout), sys.stdout), flush=True)
            case _:
                super().show(event)


class _AttachedView(JsonView):
    """Prints one event a line, the same live and in a replay; events of one row are written together."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Event] = []  # events of an incomplete row

    def show(self, event: Event) -> None:
        """Print the events of a row once it is complete."""
        self._held.append(event)
        if not event.seq and (event.kind == "insert" or len(self._held) > 1):
            return
        objects = [event_object(each) for each in self._held]
        self._held.clear()
        for each in objects:
            if each["kind"] == "prompt":
                each.pop("place", None)  # only for clients that edit the document
        sys.stdout.write("".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in objects))
        sys.stdout.flush()

    def pause(self) -> None:
        """Drop the events of an incomplete row: resuming with --from repeats them."""
        self._held.clear()


class _SessionFollower(Follower):
    """Follows all runs of a session after row ``after``; None begins with the current run."""

    def __init__(
        self,
        link: DaemonClient,
        branch_dir: Path,
        view: View,
        *,
        human: bool,
        until_idle: bool,
        after: int | None,
    ) -> None:
        super().__init__(link, str(branch_dir), "", view, human=human, seq=after)
        self._until_idle = until_idle

    def attach(self) -> FollowEnd:
        """Show the events so far, and follow until the user leaves, or until the session is idle."""
        try:
            with Interrupts() as interrupts:
                return self.catch_up() or self._until(None, lambda: interrupts.count > 0) or FollowEnd("detached")
        finally:
            self._view.pause()

    def catch_up(self) -> FollowEnd | None:
        """Attach, and show the events so far."""
        state = self._link.call("attach", branch=self._branch)
        self._branch, upto = state["branch"], int(state["seq"])
        for event in replay(self._link, self._branch, self._seq, upto):
            self._view.show(event)
        self._seq = self._known = upto
        if items := state.get("todo"):
            self._view.show(Event("todo", self._branch, 0, ({"items": items},)))
        for ask in state.get("asks") or ():
            if ask["branch"] != self._branch:  # an agent's ask, which is in the agent's log
                self._view.show(Event("ask", self._branch, 0, (ask,)))
            if self._human:
                self._put(ask)
        status = state["status"]
        self._view.show(Event("status", self._branch, 0, (status,)))
        return self._idle(status)

    def _handle_event(self, event: Event) -> FollowEnd | None:
        ending = super()._handle_event(event)
        if ending is None and event.kind == "status" and event.branch == self._branch:
            ending = self._idle(event.args[0])
        return ending

    def _idle(self, status: Mapping[str, Any]) -> FollowEnd | None:
        if not self._until_idle or status["state"] not in _QUIET:
            return None
        if status["state"] == "error":
            return FollowEnd("error", str(status.get("message") or ""))
        return None if status.get("queued") else FollowEnd("done")


_TEXT = 100  # characters of a message in the list of queued ones


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--cancel", metavar="ID", help="Remove a message from the queue and print its text.")
@click.option("--edit", nargs=2, metavar="ID TEXT", help="Replace the text of a queued message.")
@click.option("--resume", is_flag=True, help="Resume the queue after an error.")
@json_option
def queue(session: str, cancel: str | None, edit: tuple[str, str] | None, resume: bool, as_json: bool) -> None:
    """List the queued messages of SESSION, the next one first.

    Messages sent during a run are queued and sent one after the other. After an error the queue is paused until you
    send another message or use --resume.
    """
    if sum((cancel is not None, edit is not None, resume)) > 1:
        raise click.UsageError("--cancel, --edit and --resume exclude each other")
    with session_link(session) as (link, branch):
        if cancel is not None:
            text = link.call("queue-cancel", branch=branch, id=cancel)
            print_reply({"id": cancel, "text": text}, text, as_json=as_json)
            return
        if edit:
            link.call("queue-edit", branch=branch, id=edit[0], text=edit[1])
        if resume:
            link.call("queue-resume", **watched_run(link, branch)[1])
        found = link.call("queue", branch=branch)
    items = found["items"]
    rows = [(item["id"], "steers" if item["steer"] else "", one_line(item["text"], _TEXT)) for item in items]
    print_list(items, ("id", "how", "message"), rows, as_json=as_json, empty="No message waits.")
    if found["paused"] and not as_json:
        note(f"they wait because of an error; go on with: pyagentd queue {session} --resume")


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "--agent",
    default="build",
    show_default=True,
    metavar="NAME",
    shell_complete=complete_agent,
    help="Agent that carries it out: a preset.",
)
@click.option("--wait/--no-wait", default=True, help="Wait until the run ends (default), or return at once.")
@asking_options
@strict_option
@stream_options
def approve(
    session: str,
    agent: str,
    wait: bool,
    allow: tuple[str, ...],
    headless: bool,
    strict: bool,
    form: Form,
) -> ExitCode:
    """Approve the plan in SESSION and carry it out.

    Sends "Approved, continue." as your message, which the agent build answers. Only a session in plan mode
    (send --agent plan) with an answer has a plan.
    """
    human = is_human(form, headless=headless)
    with daemon(human=human) as link:
        _, begin = watched_run(link, session)
        with Interrupts():
            sent: dict[str, Any] = link.call("approve", agent=agent, allow=allow, **begin)
            return follow_sent(link, begin["branch"], session, sent, form, human=human, wait=wait, strict=strict)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--end", type=click.IntRange(min=1), metavar="POSITION", help="Read up to this Emacs position only.")
@click.option("--prompt-prefix", help="Prefix of a prompt (default: '### ', in Org '*** ').")
@click.option("--response-prefix", default="", help="Prefix of an answer.")
def messages(file: Path, end: int | None, prompt_prefix: str | None, response_prefix: str) -> None:
    """Print the messages in a chat file.

    They are those that gptel would send, in the form of the Anthropic API. FILE is a session.md or a chat in
    Markdown, plain text or Org. Needs no daemon.
    """
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from error
    if not is_org(file, text):
        print_json(
            gptel_messages(text, end=end, prompt_prefix=prompt_prefix or "### ", response_prefix=response_prefix)
        )
        return
    if end is not None:
        raise click.UsageError("--end is for chats in Markdown or plain text")
    org, _ = read_org(text)
    print_json(gptel_messages(org, prompt_prefix=prompt_prefix or "*** ", response_prefix=response_prefix))
