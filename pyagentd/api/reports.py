"""Pages of outlined text with faces and buttons, ready for every client to show: the operation ``report``.

Emacs shows a page in a buffer of ``pyagentd-list.el``, folded by its headings; the command line prints it.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from pyagentd.api.approvals import Approvals
from pyagentd.api.background import Background
from pyagentd.api.group import NOTHING, Client, Env, Followed, Group, operations_of, reply_of
from pyagentd.api.inspection import Inspection, context_chart
from pyagentd.api.mcp import McpOperations
from pyagentd.api.missions import Missions
from pyagentd.api.models import ModelOperations
from pyagentd.api.sessions import Sessions
from pyagentd.api.views import (
    ActionReply,
    action,
    decision,
    file_place,
    local_time,
    make,
    report_place,
    session_place,
    task_status,
)
from pyagentd.errors import BadRequest, NotFound
from pyagentd.events import Face, Line, LineReply, Place, Text, one_line
from pyagentd.features.usage import By
from pyagentd.runtime.approvals import agent_words, lines_of
from pyagentd.store import charts, paths, presetfile
from pyagentd.store.charts import Chart
from pyagentd.words import printable, quantity

_WIDTH = 76  # columns of a chart


class ReportReply(TypedDict):
    """A page, ready to be shown."""

    name: str
    title: str
    lines: list[LineReply]
    actions: list[ActionReply]
    follows: list[str]  # its sources, such as sessions or tasks: the client reloads it when they change
    end: bool  # the client scrolls to the end, as in a log


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A page; its ``actions`` use no facts of rows, and clients reload it when what it ``follows`` changes."""

    title: str
    lines: Sequence[Line]
    actions: Sequence[ActionReply] = ()
    follows: Sequence[Followed] = ()
    end: bool = False


def heading(text: str, level: int = 1, *, folded: bool = False, visit: Place | None = None) -> Line:
    """Return a heading."""
    return Line((Text(text, "heading", visit),), level, folded)


def body(*parts: Text | str) -> Line:
    """Return a line below a heading."""
    return Line(("  ", *parts))


def drawn(chart: Chart, width: int = _WIDTH) -> Line:
    """Return a chart as one line, which graphical clients show as a picture."""
    return Line((Text(charts.text(chart, width), svg=charts.svg(chart)),))


def text_lines(text: str) -> list[Line]:
    """Return the lines of a multi-line text below a heading."""
    return [body(line) for line in text.split("\n")]


class Pages(Group):
    """The pages, each a method that takes typed arguments, as an operation does, and returns a ``Report``."""

    async def ask(self, client: Client, *, id: str) -> Report:
        """Return a pending question with all its details."""
        found = next((row for row in self._kernel.asks.all() if row["id"] == id), None)
        if found is None:
            raise NotFound(f"No question {id} is open", hint="It may have been answered elsewhere")
        log = paths.root_of(self._ref(found["branch"])).branch_dir / "messages.jsonl"
        state = self._kernel.config.sessions_dir / "state.db"
        return Report(title="Question", lines=list(_ask_lines(found, log, state)))

    async def mission(self, client: Client, *, branch: str) -> Report:
        """Return the missions of a session, turn by turn; nothing is run."""
        reply = await self._group(Missions).traced(self._ref(branch))
        found = reply["missions"]
        last = found[-1] if found else {}
        actions = [
            *([action("k", "stop", "abort", arguments={"branch": branch})] if last.get("state") == "running" else []),
            *(
                [action("c", "continue", "mission-resume", arguments={"branch": branch}, env=True)]
                if last.get("can_resume")
                else []
            ),
            *([action("w", "copy the value", copies=last["text"])] if last.get("ok") else []),
        ]
        lines = [
            *(line for mission in found for line in _mission(mission, branch)),
            *(line for ask in reply["asks"] for line in _question_lines(ask)),
        ]
        return Report(
            title="Mission" + (" running" if last.get("state") == "running" else ""),
            lines=lines or [Line(("No missions yet.",))],
            actions=actions,
            follows=("sessions", "asks"),
        )

    async def task(self, client: Client, *, branch: str, id: str) -> Report:
        """Return the end of a background command's output."""
        task = await self._group(Background).task_output(client, branch=branch, id=id)
        lines = [
            Line((Text(*task_status(task)), "  ", *task["command"].splitlines()[:1])),
            Line((Text(task["output_path"], "dim", file_place(task["output_path"])),)),
            Line((Text(task["output"].rstrip("\n"), "output"),)),
        ]
        arguments = {"branch": branch, "id": id}
        question = f"End {id} ({one_line(task['command'], 40)})?"
        end = action("k", "end it", "task-kill", arguments=arguments, question=question, done=f"Ended {id}")
        actions = [end] if task["status"] == "running" else []
        return Report(title="Output", lines=lines, actions=actions, end=True, follows=("tasks", "output"))

    async def hooks(self, client: Client, *, branch: str | None = None, root: str | None = None) -> Report:
        """Return your hooks and the project's, with the project's scripts."""
        root = await self._root(branch, root)
        reply = await self._group(McpOperations).hooks(client, root=root)
        lines = [
            Line(
                (
                    Text(f"{hook['event']:14} ", "heading"),
                    " ".join(hook["command"]),
                    Text(f"  {hook['source']}{'' if hook['trusted'] else '  does not run: not trusted'}", "dim"),
                )
            )
            for hook in reply["hooks"]
        ] or [Line(("No hooks.",))]
        for hook in reply["hooks"]:
            if hook["problem"]:
                lines.append(Line((Text(f"{hook['source']} cannot be used: {hook['problem']}", "bad"),)))
        if reply["error"]:
            lines.append(Line((Text(f"The project's hooks cannot be used: {reply['error']}", "bad"),)))
        if reply["file"]:
            lines += _files([{"path": reply["file"], "text": reply["text"]}, *reply["scripts"]])
        waiting = sum(not hook["trusted"] for hook in reply["hooks"])
        question = f"Let {quantity(waiting, 'program')} of this project run with your rights at every turn here?"
        arguments = {"root": root, "hash": reply["hash"]}
        can = waiting and not reply["error"]
        return Report(title="Hooks", lines=lines, actions=[_trust("trust-hooks", arguments, question)] if can else [])

    async def presets(self, client: Client, *, branch: str | None = None, root: str | None = None) -> Report:
        """Return the project's presets that you have not trusted yet."""
        root = await self._root(branch, root)
        found = (await self._group(ModelOperations).presets(client, root=root))["untrusted"]
        if not found:
            return Report(title="Presets", lines=[Line((f"No preset of {root} needs to be trusted.",))])
        lines = [
            Line((f"Presets of {root} that you have not trusted yet.",)),
            Line(("They say which tools an agent has, and what it may read, write and run.",)),
        ]
        for each in found:
            lines.append(heading(f"{each['name']}  {each['source']}"))
            if wrong := each.get("error"):
                lines.append(body(Text(f"Cannot be used: {wrong}", "bad")))
            lines += text_lines(each.get("text") or "It is too large to be shown here, so it cannot be trusted here.")
        usable = [each for each in found if not each.get("error") and each.get("text")]
        question = f"Allow agents to be made from {', '.join(each['name'] for each in usable)}?"
        arguments = {"root": root, "hashes": [each["hash"] for each in usable]}
        actions = [_trust("trust-presets", arguments, question)] if usable else []
        return Report(title="Presets", lines=lines, actions=actions)

    async def servers(self, client: Client, *, branch: str | None = None, root: str | None = None) -> Report:
        """Return the commands and scripts of the project's MCP servers."""
        reply = await self._group(McpOperations).mcp(client, branch=branch, root=root)
        waiting = [each["name"] for each in reply["servers"] if not each["trusted"]]
        wrong = [Line((Text(f"Cannot be used: {reply['error']}", "bad"),))] if reply["error"] else []
        if not waiting:
            lines = wrong or [Line(("No server of this project needs to be trusted.",))]
            return Report(title="MCP servers", lines=lines)
        lines = [
            Line(("What these programs load besides is not looked at: it may change without a question.",)),
            *wrong,
            *_files([*reply["files"], *reply["scripts"]]),
        ]
        question = f"Allow {', '.join(waiting)} to run with your rights here?"
        arguments = {"root": reply["root"], "hash": reply["hash"]}
        return Report(title="MCP servers", lines=lines, actions=[_trust("trust-mcp", arguments, question)])

    async def trust(self, client: Client, *, branch: str) -> Report:
        """Return the ``preset.md`` of a session from another machine, to trust it."""
        reply = await self._group(Sessions).trust_session(client, branch=branch)
        data = await asyncio.to_thread(presetfile.content, Path(reply["file"]))
        if hashlib.sha256(data).hexdigest() != reply["sha256"]:
            raise BadRequest(f"{reply['file']} has changed just now", hint="Look at it again")
        text = data.decode(errors="replace")
        where = "is from elsewhere and waits for your trust" if reply["foreign"] else "is trusted"
        lines = [Line((f"This session {where}.",)), *_files([{"path": reply["file"], "text": text}])]
        arguments = {"branch": branch, "sha256": reply["sha256"]}
        question = "You have read it; may this session do what it says?"
        actions = [_trust("trust-session", arguments, question)] if reply["foreign"] else []
        return Report(title="Trust", lines=lines, actions=actions)

    async def decision(self, client: Client, *, id: int) -> Report:
        """Return one decision of the audit with all its details."""
        found = (await self._group(Approvals).audit(client, limit=1, before=id + 1))["decisions"]
        if not found or found[0]["id"] != id:
            raise NotFound(f"There is no decision {id}")
        row: Mapping[str, Any] = found[0]
        fields = ("action", "tool", "rule", "reason", "by", "session", "branch", "agent", "run_id")
        lines = [Line((Text(*decision(row["decision"])), "  ", local_time(row["at"])["text"]))]
        for name in fields:
            if value := row.get(name):
                shown = f"{value}  {agent_words(value)}" if name == "agent" else str(value)
                lines.append(Line((Text(f"{name.replace('_id', '').capitalize():8} ", "heading"), shown)))
        return Report(title="Decision", lines=lines)

    async def inspect(self, client: Client, *, branch: str) -> Report:
        """Return what happened in a branch: requests, tokens, tools, decisions."""
        reply = await self._group(Inspection).traced(self._ref(branch))
        async with self._kernel.using(self._ref(branch)) as live:
            turns = {message.id: chart for message, chart in charts.turns(live.conversation.snapshot())}
            filled = await context_chart(live)
        return Report(title="Inspect", lines=list(_inspector_lines(reply, branch, filled, turns)))

    async def usage(self, client: Client, *, days: int = 30, by: By | None = None, width: int = _WIDTH) -> Report:
        """Return charts of the cost of all sessions."""
        lines: list[Line] = []
        for each in (by,) if by else ("day", "model", "session"):
            reply = await self._group(ModelOperations).usage_report(client, by=each, days=days)
            chart = charts.spending(reply["lines"], each, reply["rest"])
            nothing = body("Nothing was spent in this time.")
            lines += [heading(chart.title), drawn(chart, width) if chart.rows else nothing, Line(("",))]
        return Report(title="Usage", lines=lines)

    async def request(self, client: Client, *, branch: str, run: str, step: int, purpose: str = "step") -> Report:
        """Return a request as it was sent, without its pictures."""
        sent = await self._group(Inspection).request_body(self._ref(branch), run, step, purpose)
        shown = await asyncio.to_thread(lambda: json.dumps(_without_pictures(sent), ensure_ascii=False, indent=2))
        return Report(title="Request", lines=[Line((line,)) for line in shown.split("\n")])

    async def server(self, client: Client, *, name: str, root: str | None = None, env: Env = NOTHING) -> Report:
        """Start an MCP server if it is not running, and return its tools, resources and prompts."""
        reply = await self._group(McpOperations).mcp_test(client, name=name, root=root, env=env)
        if not reply["ok"]:
            return Report(title="MCP server", lines=[heading(name), body(Text(reply["error"], "bad"))])
        # A server's texts are kept on one line: with a line break they could pass for text of the daemon.
        lines = [heading(_on_a_line(reply["title"] or name))]
        lines.append(body(f"protocol {_on_a_line(reply['protocol'])}, {reply['duration_ms']} ms"))
        for tool in reply["tools"]:
            looks = "  says that it only looks" if tool["looks"] else ""
            lines += [heading(f"{_on_a_line(tool['rule'])}{looks}", 2), *text_lines(tool["description"])]
        for refused in reply["refused"]:
            why = Text(f"cannot be offered: {_on_a_line(refused['why'])}", "bad")
            lines += [heading(_on_a_line(refused["name"]), 2), body(why)]
        if reply["resources"]:
            lines.append(heading("Resources", 2))
            lines += [body(_on_a_line(f"@{name}:{each['uri']} {each['name']}")) for each in reply["resources"]]
        if reply["prompts"]:
            lines.append(heading("Prompts", 2))
        for prompt in reply["prompts"]:
            takes = " ".join(
                f"<{each['name']}>" if each["required"] else f"[{each['name']}]" for each in prompt["arguments"]
            )
            lines.append(body(_on_a_line(f"/{name}:{prompt['name']} {takes}")))
            lines += [body("  ", line) for line in prompt["description"].splitlines()]
        return Report(title="MCP server", lines=lines)


def _on_a_line(text: str) -> str:
    return printable(" ".join(text.split()))


class Reports(Group):
    """The operations that show pages."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._pages = operations_of(Pages(*parts))

    async def report(
        self,
        client: Client,
        *,
        name: str,
        arguments: Mapping[str, Any] = NOTHING,
        watch: bool = False,
    ) -> ReportReply:
        """Return the page ``name`` as lines with headings, faces and buttons.

        Pages and their arguments: "ask" and "decision" (``id``), "inspect" and "mission" (``branch``), "request" (one
        step of an inspector), "task" (``branch``, ``id``: the output of a background command), "usage" (``days``,
        ``width``, ``by``: one chart instead of three), and "server" (``name``, ``root``, ``env``), which starts an
        MCP server. Pages to read before trusting: "hooks", "presets" and "servers" of the project (``branch`` or
        ``root``), "trust" (``branch``). With ``watch`` the client receives events about what it ``follows``.
        """
        report: Report = await make(self._pages, "page", client, name, arguments)
        if watch:
            self._follow(client, *report.follows)
        lines, actions = [line.to_wire() for line in report.lines], list(report.actions)
        return reply_of(ReportReply, report, name=name, lines=lines, actions=actions, follows=list(report.follows))


_LONGEST_PICTURE = 200  # characters of base64


def _without_pictures(value: Any) -> Any:
    """Return a request in which a placeholder replaces the data of each picture."""
    if isinstance(value, list):
        return [_without_pictures(each) for each in value]
    if isinstance(value, dict):
        return {
            key: f"… {len(each)} characters of base64 …"
            if key == "data" and isinstance(each, str) and len(each) > _LONGEST_PICTURE
            else _without_pictures(each)
            for key, each in value.items()
        }
    return value


# Files to read before trusting them.


def _files(files: Sequence[Mapping[str, Any]]) -> list[Line]:
    return [line for each in files for line in (heading(str(each["path"])), *text_lines(str(each["text"])))]


def _trust(operation: str, arguments: Mapping[str, Any], question: str) -> ActionReply:
    return action("T", "trust what is shown", operation, arguments=arguments, question=question, done="Trusted")


# One question.


def _ask_lines(ask: Mapping[str, Any], log: Path, state: Path) -> Iterator[Line]:
    first, *lines = lines_of(ask, width=None)
    yield first
    yield Line((Text(str(ask["branch"]), "dim", session_place(ask["branch"])),))
    yield from lines
    if reason := ask.get("reason"):
        yield Line((Text(f"Asked because {reason}", "detail"),))
    if remember := ask.get("remember") or ():
        yield heading("Allowed from now on, exactly this would be remembered")
        for expression, words in zip(remember, ask.get("covers") or remember, strict=False):
            yield body(f"  {words}")
            yield body("  ", Text(printable(expression).replace("\n", "\\n"), "code"))
        yield body(f"in this session and its agents, kept in {log}")
        yield body(f"in every session of {ask.get('project') or 'this project'}, kept in {state}")
    if given := ask.get("input"):
        yield heading("Arguments")
        yield from text_lines(printable(json.dumps(json.loads(given), ensure_ascii=False, indent=2)))


# Missions.


_STATES: Mapping[str, Face] = {"done": "good", "running": "warn", "restart": "warn"}


def _mission(mission: Mapping[str, Any], branch: str) -> Iterator[Line]:
    run, state = str(mission["run"]), str(mission["state"])
    prompt = str(mission["prompt"] or "")
    first = one_line(prompt, 66)
    yield Line((Text(state, _STATES.get(state, "bad")), "  ", Text(first, visit=session_place(branch))), 1, id=run)
    if prompt != first:
        yield from _block(prompt)
    yield from _block(mission["signature"] or "", "dim")
    if tools := mission["tools"]:
        yield from _block(f"tools: {', '.join(tools)}", "dim")
    if inputs := mission["inputs"]:
        yield from _block(f"ctx: {', '.join(inputs)}", "dim")
    for turn in mission["turns"]:
        yield from _turn(turn, f"{run}/{turn['number']}")
    if mission["ok"]:
        yield Line(("Value",), 2, id=f"{run}/value")
        yield from _block(mission["text"] or "null")
    if fail := mission["fail"]:
        yield Line(("Failed",), 2, id=f"{run}/fail")
        reason = f"{fail['reason']}: " if fail.get("reason") else ""
        yield from _block(f"{reason}{fail.get('message') or ''}", "bad")
    if mission["can_resume"]:
        yield from _block("c continues it behind its last program", "dim")


def _turn(turn: Mapping[str, Any], id: str) -> Iterator[Line]:
    failed = turn["state"] == "failed"
    usage, spent = turn["usage"], ""
    if usage:
        sent = sum(usage.get(bucket) or 0 for bucket in ("input", "cache_read", "cache_write"))
        spent = f"  {sent} in, {(usage.get('output') or 0) + (usage.get('reasoning') or 0)} out"
    failure = [Text("  failed", "bad")] if failed else []
    yield Line((f"Turn {turn['number']}{spent}{_took(turn['duration_ms'])}", *failure), 2, id=id)
    if reply := turn.get("said"):
        yield from _block(reply, "detail")
    if program := turn.get("program"):
        yield Line((Text("\n".join(f"    {line}" for line in program.rstrip().split("\n")), "lisp"),))
    else:
        yield from _block("(no program)", "dim")
    for number, call in enumerate(turn["calls"] or ()):
        yield from _call_lines(call, f"{id}/{number}")
    if result := turn.get("result"):
        yield Line((f"= {one_line(result, 60)}",), 3, True, f"{id}/=")
        yield from _block(result, "bad" if failed else "")


def _call_lines(call: Mapping[str, Any], id: str) -> Iterator[Line]:
    state, given = call["state"], call["input"] or {}
    words = one_line(" ".join(str(value) for value in given.values()), 50)
    visit = report_place("mission", branch=call["branch"]) if call.get("branch") else None
    how = {"failed": [Text("  failed", "bad")], "running": [Text("  running", "warn")]}.get(state, [])
    took = _took(call["duration_ms"])
    yield Line(("→ ", Text(call["name"], "strong", visit), f" {words}", *how, took), 3, True, id)
    for key, value in given.items():
        yield from _block(f"{key}: {value}", "dim")
    if result := call.get("result"):
        yield from _block(result, "bad" if state == "failed" else "")


def _question_lines(ask: Mapping[str, Any]) -> Iterator[Line]:
    what = f"Waiting for your approval: {ask['tool']} {one_line(ask['detail'] or '', 60)}"
    yield Line((Text(what, "warn", report_place("ask", id=ask["id"])),), 2, id=ask["id"])
    if reason := ask["reason"]:
        yield from _block(reason, "dim")


def _block(text: str, face: Face = "") -> Iterator[Line]:
    for line in text.rstrip().split("\n"):
        yield Line((Text(f"    {line}", face),))


def _took(milliseconds: float | None) -> str:
    if milliseconds is None:
        return ""
    return f"  {milliseconds:.0f} ms" if milliseconds < 1000 else f"  {milliseconds / 1000:.1f} s"


# The inspector.


def _inspector_lines(
    reply: Mapping[str, Any], branch: str, filled: Chart | None, turns: Mapping[str, Chart]
) -> Iterator[Line]:
    session, own = reply["session"], (reply["usage"] or {}).get("own")
    yield heading(f"{session['session_id']}/{session['branch_name']}  {session['title'] or ''}".rstrip())
    temperature = session["temperature"]
    yield body(
        f"model {session['model'] or '(the backend chooses)'}, backend {session['backend']}, "
        f"temperature {'(the model chooses)' if temperature is None else temperature}"
    )
    yield body(f"workspace {session['workspace_root']}")
    if own:
        yield body(f"spent {_buckets(own['tokens'])}; {_price(own.get('cost_usd'))}")
    if filled is not None:
        yield heading(filled.title, 2)
        yield drawn(filled)
    yield from _rights(reply["permissions"])
    if reply["system"] or reply["tools"]:  # empty if the branch sent no request
        yield heading("System prompt", 2, folded=True)
        yield from text_lines(reply["system"])
        yield heading(f"Tools ({len(reply['tools'])})", 2, folded=True)
        for tool in reply["tools"]:
            yield heading(str(tool["name"]), 3)
            yield from text_lines(str(tool.get("description") or ""))
    for run in reply["runs"]:
        yield from _run(run, branch, turns.get(str(run["message_id"])))


def _rights(permissions: Mapping[str, Any]) -> Iterator[Line]:
    yield heading("Permissions", 2)
    profile = permissions["profile"]
    name = profile.get("name") if isinstance(profile, Mapping) else profile
    yield body(f"profile {name or '(none)'}{', changes nothing' if permissions['read_only'] else ''}")
    for section, key, word in (
        ("paths", "read", "reads"),
        ("paths", "write", "writes"),
        ("paths", "deny", "denied"),
        ("shell_commands", "allow", "commands"),
        ("shell_commands", "deny", "denied commands"),
    ):
        if found := permissions[section].get(key):
            yield body(f"{word}: {'  '.join(found)}")
    if above := permissions["denied_above"]:
        yield body(f"denied above: {'  '.join(above)}")
    for grant in permissions["grants"]:
        yield body(f"granted ({grant['kind']}): {grant['action']}")


def _run(run: Mapping[str, Any], branch: str, chart: Chart | None) -> Iterator[Line]:
    marks = [
        *([f"by {run['trigger'].get('source')}"] if run.get("trigger") else []),
        *([f"as {run['agent']}"] if run.get("agent") else []),
        *(["taken back"] if run.get("hidden") else []),
    ]
    more = f" ({', '.join(marks)})" if marks else ""
    prompt = " ".join(str(run.get("prompt") or "(beside the conversation)").split("\n"))
    yield heading(f"{run.get('reason') or '…'}{more}  {prompt}")
    yield body(str(run["id"]))
    if error := run.get("error"):
        yield body(Text(f"! {error['message']}", "bad"))
    if chart is not None:
        yield heading(chart.title, 2)
        yield drawn(chart)
    for step in run["steps"]:
        yield from _step(run, step, branch)
    if decisions := run["decisions"]:
        yield heading(f"Decisions ({len(decisions)})", 2)
        for each in decisions:
            by = f" by {each['by']}" if each["by"] else ""
            yield body(f"{each['decision']}: {each['action']} ({each['rule']}{by})")


def _step(run: Mapping[str, Any], step: Mapping[str, Any], branch: str) -> Iterator[Line]:
    purpose = "" if step["purpose"] == "step" else f" {step['purpose']}"
    end = (step["error"] or {}).get("message") or step["stop_reason"] or "no answer"
    at = local_time(step["at"], "%H:%M:%S")["text"]
    yield heading(
        f"#{step['number']}{purpose}  {at}  {step['model']}  {end}",
        2,
        visit=report_place("request", branch=branch, run=run["id"], step=step["step"], purpose=step["purpose"]),
    )
    messages = "? messages" if step["messages"] is None else quantity(step["messages"], "message")
    yield body(
        f"{messages}, {_known(step['new_messages'])} new; {_known(step['duration_ms'])} ms, "
        f"the first word after {_known(step['first_token_ms'])} ms"
    )
    if step["usage"]:
        yield body(f"{_buckets(step['usage'])}; {_price(step['cost_usd'])}")
    for name, value in (step["parameters"] or {}).items():
        yield body(f"{name}: {json.dumps(value, ensure_ascii=False)}")
    for retry in step["retries"]:
        again = f"again after {retry['delay_s']:.1f} s"
        yield body(f"attempt {retry['attempt']} failed: {retry['message']}; {again}")
    for call in step["calls"]:
        took = f", {call['duration_ms']} ms" if call.get("duration_ms") is not None else ""
        yield body(f"• {call['name']}: {call.get('error') or call.get('state') or 'no result'}{took}")


def _known(value: object) -> object:
    return "?" if value is None else value


def _buckets(usage: Mapping[str, int]) -> str:
    words = {
        "input": "in",
        "cache_read": "cached",
        "cache_write": "to cache",
        "reasoning": "thought",
        "output": "out",
    }
    return ", ".join(f"{usage.get(key) or 0} {word}" for key, word in words.items())


def _price(usd: float | None) -> str:
    return "price unknown" if usd is None else f"${usd:.4f}"
