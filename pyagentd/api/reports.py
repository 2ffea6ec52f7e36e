"""Pages as every client shows them: outlined text with faces and buttons, made by one operation ``report``.

Emacs shows a page in a buffer of ``pyagentd-report.el``, folded by its headings; the command line prints it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyagentd.api.approvals import Approvals
from pyagentd.api.group import Client, Group, Process
from pyagentd.api.inspection import Inspection
from pyagentd.api.mcp import Env, McpOperations
from pyagentd.api.views import (
    DECISIONS,
    Face,
    agent_words,
    count,
    local_time,
    report_place,
)
from pyagentd.errors import BadRequest, NotFound, did_you_mean
from pyagentd.features.indexer import Indexer
from pyagentd.runtime.kernel import Kernel
from pyagentd.store.registry import Registry
from pyagentd.wire.operations import Operation, operation
from pyagentd.wire.sexp import SexpError, plist_to_dict


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a line; ``visit`` makes it a button that opens that place."""

    text: str
    face: Face = ""
    visit: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a heading of ``level`` 1 or more, which folds what stands below it, or one of the body.

    Attributes:
        parts: What it consists of.
        level: 0 in the body.
        folded: Whether a heading is folded at first.
    """

    parts: Sequence[Text | str]
    level: int = 0
    folded: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Return it as it travels."""
        return {
            "level": self.level,
            "folded": self.folded,
            "parts": [
                part if isinstance(part, str) else {"text": part.text, "face": part.face or None, "visit": part.visit}
                for part in self.parts
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A page."""

    title: str
    lines: Sequence[Line]


def heading(text: str, level: int = 1, *, folded: bool = False, visit: Mapping[str, Any] | None = None) -> Line:
    """Return a heading."""
    return Line((Text(text, "heading", visit),), level, folded)


def body(*parts: Text | str) -> Line:
    """Return a line below a heading."""
    return Line(("  ", *parts))


def text_lines(text: str) -> list[Line]:
    """Return the lines of a longer text below a heading."""
    return [body(line) for line in text.split("\n")]


class Reports(Group):
    """The pages, each a method that takes typed arguments, as an operation does, and returns a ``Report``."""

    def __init__(self, kernel: Kernel, registry: Registry, indexer: Indexer | None, process: Process) -> None:
        super().__init__(kernel, registry, indexer, process)
        parts = kernel, registry, indexer, process
        self._approvals = Approvals(*parts)
        self._inspection = Inspection(*parts)
        self._mcp = McpOperations(*parts)
        self._reports: dict[str, Operation] = {
            each.name: each
            for each in (
                operation("decision", self._decision),
                operation("inspect", self._inspect),
                operation("request", self._request),
                operation("server", self._server),
            )
        }

    async def report(
        self, client: Client, *, name: str, arguments: Mapping[str, Any] | Sequence[Any] = ()
    ) -> dict[str, Any]:
        """Return the page ``name``, as lines with headings, faces and buttons.

        It is "inspect" (``branch``), "request" (of it), "decision" (``id``), or "server" (``name``, ``root``,
        ``env``), which starts an MCP server.

        The reply is ``{name, title, lines}``; a line is ``{level, folded, parts}``, a part a string or
        ``{text, face, visit}``: a heading has a ``level`` above 0, ``visit`` is a place as in ``view``.
        """
        found = self._reports.get(name)
        if found is None:
            raise NotFound(f"There is no report {name[:60]!r}", hint=did_you_mean(name, self._reports))
        try:
            given = dict(arguments) if isinstance(arguments, Mapping) else plist_to_dict(list(arguments))
        except SexpError as error:
            raise BadRequest(f"arguments is no plist: {error}") from None
        report: Report = await found.run(client, **found.bind_named(given))
        return {
            "name": name,
            "title": report.title,
            "lines": [line.to_wire() for line in report.lines],
        }

    async def _decision(self, client: Client, *, id: int) -> Report:
        """Return one decision of the audit with all that is known of it."""
        found = (await self._approvals.audit(client, limit=1, before=id + 1))["decisions"]
        if not found or found[0]["id"] != id:
            raise NotFound(f"There is no decision {id}")
        row = found[0]
        fields = ("action", "tool", "rule", "reason", "by", "session", "branch", "agent", "run_id")
        lines = [
            Line((Text(*DECISIONS.get(row["decision"], (row["decision"], ""))), "  ", local_time(row["at"]).text))
        ]
        for name in fields:
            if value := row.get(name):
                said = f"{value}  {agent_words(value)}" if name == "agent" else str(value)
                lines.append(Line((Text(f"{name.replace('_id', '').capitalize():8} ", "heading"), said)))
        return Report(title="Decision", lines=lines)

    async def _inspect(self, client: Client, *, branch: str) -> Report:
        """Return what happened in a branch: requests, tokens, tools, decisions."""
        told = _json(await self._inspection.trace(client, branch=branch))
        return Report(title="Inspect", lines=list(_inspected(told, branch)))

    async def _request(self, client: Client, *, branch: str, run: str, step: int, purpose: str = "step") -> Report:
        """Return a request as it was sent, but for what is long: pictures."""
        sent = await self._inspection.traced_request(client, branch=branch, run=run, step=step, purpose=purpose)
        shown = json.dumps(_without_pictures(_json(sent)), ensure_ascii=False, indent=2)
        return Report(title="Request", lines=[Line((line,)) for line in shown.split("\n")])

    async def _server(self, client: Client, *, name: str, root: str | None = None, env: Env = ()) -> Report:
        """Start an MCP server if it does not run, and return what it offers."""
        told = await self._mcp.mcp_test(client, name=name, root=root, env=env)
        if not told["ok"]:
            return Report(title="MCP server", lines=[heading(name), body(Text(told["error"], "bad"))])
        lines = [heading(told["title"] or name), body(f"protocol {told['protocol']}, {told['duration_ms']} ms")]
        for tool in told["tools"]:
            looks = "  says that it only looks" if tool["looks"] else ""
            lines += [heading(f"{tool['rule']}{looks}", 2), *text_lines(tool["description"])]
        for refused in told["refused"]:
            lines += [heading(refused["name"], 2), body(Text(f"cannot be offered: {refused['why']}", "bad"))]
        if told["resources"]:
            lines.append(heading("Resources", 2))
            lines += [body(f"@{name}:{each['uri']}  {each['name']}") for each in told["resources"]]
        if told["prompts"]:
            lines.append(heading("Prompts", 2))
        for prompt in told["prompts"]:
            takes = " ".join(
                f"<{each['name']}>" if each["required"] else f"[{each['name']}]" for each in prompt["arguments"]
            )
            lines.append(body(f"/{name}:{prompt['name']} {takes}".rstrip()))
        return Report(title="MCP server", lines=lines)


def _json(answer: Mapping[str, Any]) -> Any:
    # What is too large for a frame comes by path.
    return json.loads(answer.get("json") or Path(answer["path"]).read_text(encoding="utf-8"))


_LONGEST_PICTURE = 200  # characters of base64


def _without_pictures(value: Any) -> Any:
    """Return a request with the data of pictures named instead of shown."""
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


# The inspector.


def _inspected(told: Mapping[str, Any], branch: str) -> Iterator[Line]:
    session, own = told["session"], (told["usage"] or {}).get("own")
    yield heading(f"{session['session_id']}/{session['branch_name']}  {session['title'] or ''}".rstrip())
    temperature = session["temperature"]
    yield body(
        f"model {session['model'] or '(the backend chooses)'}, backend {session['backend']}, "
        f"temperature {'(the model chooses)' if temperature is None else temperature}"
    )
    yield body(f"workspace {session['workspace_root']}")
    if own:
        yield body(f"spent {_buckets(own['tokens'])}; {_price(own.get('cost_usd'))}")
    yield from _rights(told["permissions"])
    yield heading("System prompt", 2, folded=True)
    yield from text_lines(told["system"] or "")
    yield heading(f"Tools ({len(told['tools'])})", 2, folded=True)
    for tool in told["tools"]:
        yield heading(str(tool["name"]), 3)
        yield from text_lines(str(tool.get("description") or ""))
    for run in told["runs"]:
        yield from _run(run, branch)


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


def _run(run: Mapping[str, Any], branch: str) -> Iterator[Line]:
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
    at = local_time(step["at"], "%H:%M:%S").text
    yield heading(
        f"#{step['number']}{purpose}  {at}  {step['model']}  {end}",
        2,
        visit=report_place("request", branch=branch, run=run["id"], step=step["step"], purpose=step["purpose"]),
    )
    messages = "? messages" if step["messages"] is None else count(step["messages"], "message")
    yield body(
        f"{messages}, {_known(step['new_messages'])} new; {_known(step['duration_ms'])} ms, "
        f"the first word after {_known(step['first_token_ms'])} ms"
    )
    if step["usage"]:
        yield body(f"{_buckets(step['usage'])}; {_price(step['cost_usd'])}")
    for name, value in (step["parameters"] or {}).items():
        yield body(f"{name}: {json.dumps(value, ensure_ascii=False)}")
    for retry in step["retries"]:
        yield body(f"attempt {retry['attempt']} failed: {retry['message']}")
    for call in step["calls"]:
        took = f", {call['duration_ms']} ms" if call.get("duration_ms") is not None else ""
        yield body(f"• {call['name']}: {call.get('error') or call.get('state') or 'no result'}{took}")


def _known(value: object) -> object:
    return "?" if value is None else value


_BUCKETS = {"input": "in", "cache_read": "cached", "cache_write": "to cache", "reasoning": "thought", "output": "out"}


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
