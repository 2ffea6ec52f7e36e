"""The offline stand-in: answers requests of the Messages API in the process, by rules.

It replaces the server, so a demo or a test without a key runs the same code as with a key, except opening a
connection.
"""

import asyncio
import hashlib
import itertools
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyagentd.errors import ConfigError
from pyagentd.events import one_line
from pyagentd.llm import catalog, prompts
from pyagentd.llm.anthropic import AnthropicBackend
from pyagentd.llm.http import Answer, Json
from pyagentd.llm.prompts import HEADINGS, quoted_prompt
from pyagentd.messages import Body
from pyagentd.words import quantity

# Which files a prompt names or implies; pure.

_QUOTED = re.compile(r"`[^`\n]+`|\"[^\"\n]+\"|“[^”\n]+”")
_TARGETS_WORD = re.compile(r"`([^`\n]+)`|([^\s`]+)")
_PATH = re.compile(r"[~\w./@+*?{}\[\]-]+")
_FILE = re.compile(
    # ``i.e`` and ``e.g`` are none.
    r"^(.*/[\w.@+-]\.\w{1,9}|[\w.@+-]\.[A-Za-z]\w{1,8}"
    r"|(.*/)?([\w.@+-]{2,}\.[A-Za-z][A-Za-z0-9]{0,8}|\.[A-Za-z][\w.-]+|Makefile|Dockerfile|LICENSE|README))$"
)
_WILD = re.compile(r"[*?\[{]")
_NOT_PATHS = frozenset({"and/or", "either/or", "yes/no", "i/o", "input/output", "/", "*", "**"})

# Words of the prompt → the files they imply; the first match counts, the last row is the most general.
_IMPLIED = (
    (r"presets?", "presets/*.md"),
    (r"tests?", "tests/**/*.py"),
    (r"python|modules?", "**/*.py"),
    (r"elisp|emacs lisp", "**/*.el"),
    (r"markdown|docs?|documentation", "**/*.md"),
    (r"files?|find|read|list|project|directory|folder|repository|codebase", "*"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The files to read, and the patterns to find files with."""

    files: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.globs)

    def __str__(self) -> str:
        return ", ".join(f"`{name}`" for name in self.globs + self.files)


def targets_of(prompt: str) -> Targets:
    """Return the paths and patterns that ``prompt`` names, else the pattern that its words imply.

    An attachment is named by its link in the document, and by the path that can be read: only that counts.
    """
    every = named_paths(prompt)
    attached = {name for name in every if name.startswith("files/")}
    named = [name for name in every if not (name in attached and any(one.endswith(f"/{name}") for one in every))]
    files = tuple(name for name in named if _FILE.match(name) and not _WILD.search(name))
    globs = tuple(name if _WILD.search(name) else f"{name.rstrip('/')}/*" for name in named if name not in files)
    return Targets(files=files, globs=globs) if named else Targets(globs=_implied_globs(prompt))


def named_paths(prompt: str) -> list[str]:
    """Return the words of ``prompt`` that are paths or patterns, in order, without duplicates."""
    found = dict.fromkeys(_clean(quoted or plain) for quoted, plain in _TARGETS_WORD.findall(prompt))
    return [word for word in found if _is_path(word)]


def prose(prompt: str) -> str:
    """Return ``prompt`` without paths and quoted text, to be searched for key words."""
    words = _QUOTED.sub(" ", prompt).split()
    return " ".join(word for word in words if not _is_path(_clean(word)))


def _clean(word: str) -> str:
    """Return ``word`` without punctuation, and without the @ of a mention."""
    return word.strip("\"'“”‘’(),;:!").rstrip(".?").removeprefix("@")


def _is_path(word: str) -> bool:
    if word.lower() in _NOT_PATHS or "//" in word or not _PATH.fullmatch(word):
        return False
    return "/" in word or ("*" in word and "." in word) or _FILE.match(word) is not None


def _implied_globs(prompt: str) -> tuple[str, ...]:
    text = prose(prompt).lower()
    return next(((glob,) for words, glob in _IMPLIED if re.search(rf"\b({words})\b", text)), ())


# The result type of a mission, read from its prompt, and a program's expression for it; pure.
#
# The stand-in has a few facts from its search: a list of files with their lines, a list of rows, a text. Each field
# of a type gets the fact that its name and type suggest. It draws no conclusions; where a sentence is expected, it
# says so.

_TOKEN = re.compile(r"[\[\]{}|?]|:?[A-Za-z_][\w-]*")
_SIZES = re.compile(r"lines|total|sum|size|length")
_NAMES = re.compile(r"path|file|name|title|id|preset")
SENTENCE = "pyagentd's offline stand-in, not a language model: this is what the tools found"


def expression(text: str) -> str:
    """Return an expression whose value fits the type ``text``; ``found`` for a type that is not understood.

    In the program, ``found`` is a list of maps {:path :lines :text}.
    """
    try:
        return _value(iter(_TOKEN.findall(text)), "", "")
    except StopIteration:
        return "found"


def _value(tokens: Iterator[str], name: str, item: str) -> str:
    """Return the expression for a field, about ``item``, the variable of one found file, or "" for all of them."""
    token = next(tokens)
    if token == "{":
        fields: list[str] = []
        while (field := next(tokens)) != "}":
            if field not in ("?", "|"):
                field = field.lstrip(":")
                fields.append(f":{field} {_value(tokens, field, item)}")
        return "{" + " ".join(fields) + "}"
    if token == "[":
        made = _value(tokens, name if item else "path", item or "f")
        while next(tokens) != "]":
            pass
        return f"[{made}]" if item else f"(mapv (fn [f] {made}) found)"
    total = "(reduce + 0 (map :lines found))" if _SIZES.search(name) else "(count found)"
    lines = f"(:lines {item})" if item else total
    match token.lstrip(":"):
        case "int":
            return lines
        case "float":
            return f"(* 1.0 {lines})"
        case "bool":
            return f"(> {lines} 0)"
        case "string" | "keyword" if item:
            return f"({':path' if _NAMES.search(name) else ':text'} {item})"
        case "string" | "keyword":
            summary = f'(str (count found) " found by {SENTENCE}")'
            return f"(if (= 1 (count found)) (:text (first found)) {summary})"
        case "map" if not item:
            return "{:found found}"
    return item or "found"


# Reading a request of the Messages API, as far as the offline stand-in needs it; pure.
#
# The stand-in is stateless, like a real model: everything it knows is in the request. It answers the last user text
# and looks only at the tool calls made since then.

_SUMMARY = "<conversation_summary>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A tool call that was made for the prompt, with its result."""

    name: str
    input: Mapping[str, Any]
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The prompt, the offered tools by name (their input schemas), and the calls since the prompt."""

    prompt: str
    pictures: int = 0  # pictures and documents in the prompt
    tools: Mapping[str, Mapping[str, Any]]
    exchanges: tuple[Exchange, ...]


def view_of(body: Json) -> View:
    """Return the view of ``body``, the JSON of a request."""
    messages = body.get("messages") or []
    prompts = (number for number, each in reversed([*enumerate(messages)]) if each["role"] == "user" and _text(each))
    start = next(prompts, -1)
    return View(
        prompt=_text(messages[start]) if start >= 0 else "",
        pictures=len(media_of(messages[start : start + 1])) if start >= 0 else 0,
        tools={tool["name"]: tool.get("input_schema") or {} for tool in body.get("tools") or []},
        exchanges=tuple(_exchanges(messages[start + 1 :])),
    )


def text_of(content: str | list[Json] | None) -> str:
    """Return the text blocks of ``content``, one after the other."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content or [] if block.get("type") == "text")


def media_of(messages: list[Json]) -> list[str]:
    """Return the pictures and documents of ``messages``, as base64."""
    blocks = [block for each in messages if isinstance(each["content"], list) for block in each["content"]]
    return [block["source"]["data"] for block in blocks if block.get("type") in ("image", "document")]


def _text(message: Json) -> str:
    """Return the text of a message without the summary of the earlier conversation."""
    content = message["content"]
    if isinstance(content, list):
        content = [block for block in content if not block.get("text", "").startswith(_SUMMARY)]
    return text_of(content).strip()


def _exchanges(messages: list[Json]) -> list[Exchange]:
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    results = {block["tool_use_id"]: block for block in blocks if block["type"] == "tool_result"}
    return [
        Exchange(
            name=block["name"],
            input=block.get("input") or {},
            text=text_of(results[block["id"]].get("content")),
            is_error=bool(results[block["id"]].get("is_error")),
        )
        for block in blocks
        if block["type"] == "tool_use" and block["id"] in results
    ]


_NOT_A_PATH = re.compile(r"^(No |Found |\[|\()|[*\0]|: ")


def found_files(exchange: Exchange) -> list[str]:
    """Return the paths of files in the result of a Glob call, without directories and notes."""
    lines = (line.strip() for line in exchange.text.splitlines())
    return [line for line in lines if line and not line.endswith("/") and not _NOT_A_PATH.search(line)]


# How the offline stand-in fulfils a mission: one program that looks, one that returns; pure.
#
# It is stateless: it reads the task, the tools and the result type from the mission's prompt, and its progress from
# its earlier answers.

_SECTION = re.compile(r"^# (?P<title>[^\n]+)\n\n(?P<text>.*?)(?=^# |\Z)", re.MULTILINE | re.DOTALL)
_TOOL = re.compile(r"^([A-Za-z_][\w-]*)\(", re.MULTILINE)
_TYPE = re.compile(r"```\n(.*?)\n```", re.DOTALL)
_LIST = re.compile(r"ctx/([\w-]+)`?[^\n]*?\[")
_COMMAND = re.compile(r"\b(?:run|execute)\s+(?:the\s+command\s+)?`([^`\n]+)`", re.IGNORECASE)
_MOST = 20  # files to read

_FILES = """\
(let [names (fn [text] (filterv (fn [line] (and (not (blank? line)) (not (starts-with? line "["))))
                                (split-lines text)))
      last-of (fn [line] (last (split line "\\t")))
      read (fn [path]
             (let [lines (names (call "Read" {{:file_path path}}))]
               {{:path path :lines (count lines) :text (last-of (or (first lines) ""))}}))
      paths {paths}]
  {{:found (mapv read (take {most} paths))}})"""


def wants_mission(body: Mapping[str, Any]) -> bool:
    """Return whether a request asks for the next program of a mission."""
    return not body.get("tools") and "# PTC-Lisp" in text_of(body.get("system"))


def answer(body: Mapping[str, Any]) -> str:
    """Return the answer to a mission's request: a sentence and a program."""
    parts = sections(text_of(body.get("system")))
    messages = body.get("messages") or []
    answers = sum(message["role"] == "assistant" for message in messages)
    last = text_of(messages[-1]["content"]) if messages else ""
    if answers and last.startswith("Error"):
        return _block("That failed, and I cannot think of another way.", _failing_program(last))
    prompt = text_of(messages[0]["content"]) if messages else ""
    looking = _exploring_program(parts, prompt) if not answers else ""
    if looking:
        return _block("First I look.", looking)
    return _block("This is what was found.", _returning_program(parts, found=bool(answers)))


def sections(system: str) -> dict[str, str]:
    """Return the sections of a mission's prompt by title."""
    return {found["title"].strip(): found["text"].strip() for found in _SECTION.finditer(system)}


def _exploring_program(parts: Mapping[str, str], prompt: str) -> str:
    """Return the program that calls the tools for the prompt, "" when none fits."""
    tools = set(_TOOL.findall(parts.get("Available Tools", "")))
    if "Bash" in tools and (commands := _COMMAND.findall(prompt)):
        calls = " ".join(f'(call "Bash" {{:command {json.dumps(command)}}})' for command in commands)
        return f'{{:found (mapv (fn [text] {{:path "" :text text :lines (count (split-lines text))}}) [{calls}])}}'
    if "PersistentAgent" in tools and _SPAWN.search(prompt):
        return _agent(prompt)
    if "Read" not in tools:
        return ""
    targets = targets_of(prompt)
    if _LIST.search(parts.get("Data Inventory", "")) and not named_paths(prompt):
        return ""
    globs = " ".join(f'(names (call "Glob" {{:pattern {json.dumps(glob)}}}))' for glob in targets.globs)
    known = json.dumps([*targets.files])
    if globs and "Glob" in tools:
        return _FILES.format(paths=f"(into {known} (concat {globs}))", most=_MOST)
    return _FILES.format(paths=known, most=_MOST) if targets.files else ""


def _agent(prompt: str) -> str:
    """Return the program that spawns an agent to look."""
    errand = f"Find and read {targets_of(prompt)}, and report the names and the number of lines."
    return (
        '(let [text (call "PersistentAgent" {:preset "explorer" :description "look at it"\n'
        f"                                     :prompt {json.dumps(errand)}}})]\n"
        '  {:found [{:path "" :text text :lines (count (split-lines text))}]})'
    )


def _returning_program(parts: Mapping[str, str], *, found: bool) -> str:
    """Return the program that ends the mission."""
    stated = _TYPE.search(parts.get("Expected Output", ""))
    value = expression(stated[1]) if stated else "found"
    listed = _LIST.search(parts.get("Data Inventory", ""))
    known = "ctx/found" if found else f"ctx/{listed[1]}" if listed else "[]"
    return f'(let [found {known}]\n  (call "return" {value}))'


def _failing_program(message: str) -> str:
    line = message.splitlines()[0][:200]
    return f'(call "fail" {{:reason :offline :message {json.dumps(line, ensure_ascii=False)}}})'


def _block(words: str, program: str) -> str:
    return f"{words}\n\n```clojure\n{program}\n```"


# The rules of the offline stand-in: which tools to call for a prompt; pure.
#
# The first rule of ``RULES`` that fits the prompt, and whose tool is offered, applies. The next answer reads the
# files that were found, at most ``READ_AT_MOST``, and the one after it reports. A prompt that says both to look
# "yourself" and to delegate gets both, in this order.

READ_AT_MOST = 3

_SPAWN = re.compile(r"\b(sub-?agents?|agents?|explorers?|delegat\w*|spawn\w*|PersistentAgent)\b", re.IGNORECASE)
_MISSION = re.compile(r"\bmissions?\b", re.IGNORECASE)
_SIGNATURE = re.compile(r"`([{\[:][^`\n]*)`")
_YOURSELF = re.compile(r"\byourself\b", re.IGNORECASE)
_TOLD = re.compile(
    r"\b(?:agents?|explorer)\s+((?:find|look|read|search|list|check|report|tell)\b.{4,})", re.IGNORECASE | re.DOTALL
)
_ERRAND = re.compile(r"\b(?:to|that|which|who|and have it|should)\s+(.{8,})", re.IGNORECASE | re.DOTALL)
_WRITE = re.compile(r"\bwrite\s+(?:[`\"“]([^`\"”]+)[`\"”]|(\w+))\s+(?:in)?to\s+`?([\w./~-]+[\w/])`?", re.IGNORECASE)
_SEARCH = re.compile(r"\b(?:grep|search)\b.*?\bfor\s+[`\"“]([^`\"”\n]+)[`\"”]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool to call."""

    name: str
    input: Mapping[str, Any]


Rule = tuple[str, Callable[[View], Iterable[Mapping[str, Any]]]]
"""A tool, and a function that returns the inputs of its calls, none when the rule does not fit."""


def plan(view: View) -> tuple[Call, ...]:
    """Return the calls to make next, all at once; none when it is time to report."""
    looks_too = _YOURSELF.search(view.prompt) is not None
    if not view.exchanges:
        rules = (*RULES[1:], RULES[0]) if looks_too else RULES
        return next((calls for rule in rules if (calls := _apply(rule, view))), ())
    if all(exchange.name == "Glob" for exchange in view.exchanges) and "Read" in view.tools:
        found = [path for one in view.exchanges if not one.is_error for path in found_files(one)]
        return tuple(Call("Read", _read(view, path)) for path in found[:READ_AT_MOST])
    if looks_too and all(exchange.name != "PersistentAgent" for exchange in view.exchanges):
        return _apply(RULES[0], view)
    return ()


def missing_tool(view: View) -> str:
    """Return the name of the tool that the prompt needs if no fitting tool is offered, else ""."""
    wanted = [tool for tool, calls in RULES if [*calls(view)]]
    return "" if view.tools.keys() & wanted else next(iter(wanted), "")


def _apply(rule: Rule, view: View) -> tuple[Call, ...]:
    tool, calls = rule
    return tuple(Call(tool, arguments) for arguments in calls(view)) if tool in view.tools else ()


def _delegations(view: View) -> Iterable[Mapping[str, Any]]:
    if not _SPAWN.search(prose(view.prompt)):
        return
    targets = targets_of(view.prompt) or Targets(globs=("*",))
    names = targets.globs + targets.files
    yield {
        "preset": _preset(view),
        "description": f"look at {names[0]}",
        "prompt": _errand(view.prompt, targets),
    }


def _missions(view: View) -> Iterable[Mapping[str, Any]]:
    if not _MISSION.search(prose(view.prompt)):
        return
    stated = _SIGNATURE.search(view.prompt)
    signature = stated[1] if stated else "{files [{path :string, lines :int}], total :int}"
    yield {"prompt": _SIGNATURE.sub("", view.prompt).strip(), "signature": signature}


def _preset(view: View) -> str:
    """Return the preset that the prompt names, else explorer, else the first one offered."""
    schema = view.tools.get("PersistentAgent", {})
    names: list[str] = schema.get("properties", {}).get("preset", {}).get("enum") or ["explorer"]
    words = set(re.findall(r"[\w-]+", view.prompt.lower()))
    return next((name for name in names if name.lower() in words), "explorer" if "explorer" in names else names[0])


def _errand(prompt: str, targets: Targets) -> str:
    """Return the agent's prompt: the errand in the words of ``prompt``, unless they would make it delegate too."""
    report = f"Find and read {targets}, and report the names, the number of lines and the first headings."
    match = _TOLD.search(prompt) or _ERRAND.search(prompt)
    if match is None or _SPAWN.search(prose(match[1])):
        return report
    errand = match[1].strip().rstrip(".")
    return f"{errand[0].upper()}{errand[1:]}. {report}"


def _commands(view: View) -> Iterable[Mapping[str, Any]]:
    behind = {"run_in_background": True, **({"wake": True} if "wake" in view.prompt.lower() else {})}
    for command in _COMMAND.findall(view.prompt):
        is_behind = f"`{command}` in the background" in view.prompt
        yield {"command": command, **(behind if is_behind else {})}


def _writes(view: View) -> Iterable[Mapping[str, Any]]:
    for quoted, word, path in _WRITE.findall(view.prompt):
        yield {"file_path": path, "content": f"{quoted or word}\n"}


def _searches(view: View) -> Iterable[Mapping[str, Any]]:
    for pattern in _SEARCH.findall(view.prompt):
        yield {"pattern": re.escape(pattern)}


def _reads(view: View) -> Iterable[Mapping[str, Any]]:
    return (_read(view, path) for path in targets_of(view.prompt).files[:READ_AT_MOST])


def _globs(view: View) -> Iterable[Mapping[str, Any]]:
    return ({"pattern": pattern} for pattern in targets_of(view.prompt).globs[:READ_AT_MOST])


def _read(view: View, path: str) -> Mapping[str, Any]:
    properties = view.tools.get("Read", {}).get("properties", {})
    return {"path" if "path" in properties else "file_path": path}


RULES: tuple[Rule, ...] = (
    ("PersistentAgent", _delegations),  # agent, explorer, sub-agent, delegate, spawn
    ("mission", _missions),  # a mission that returns `{count :int}`
    ("Bash", _commands),  # run `make test`, run `make` in the background and wake
    ("Write", _writes),  # write `text` to notes.md, write hello to notes.md
    ("Grep", _searches),  # search for `TODO`
    ("Read", _reads),  # README.md, pyagentd/clock.py
    ("Glob", _globs),  # presets/*.md, pyagentd/llm, "list the files", "the presets"
)


# The final answer of the offline stand-in: facts quoted from the tools' results, and a disclaimer; pure.

DISCLAIMER = "I am pyagentd's offline stand-in, not a language model"
_NAMED_AT_MOST = 8
_QUOTED_LINES = 12
_QUOTED_CHARS = 100

_NUMBERED = re.compile(r"^\s*(\d+)(?:\t|→)(.*)$")
_REMARK = re.compile(r"^\[.*\]$")
_DESCRIPTION = re.compile(r"^description:\s*(\S.*)$")
_HEADING = re.compile(r"^(?:#{1,6}\s+|;{3,4}\s+|\"\"\")(\S.*)$")


def report(view: View) -> str:
    """Return the final answer for the prompt in a few sentences of Markdown."""
    if view.pictures:
        shown = "a picture" if view.pictures == 1 else f"{view.pictures} pictures"
        return f"You show me {shown}, which only a language model could look at. {report(replace(view, pictures=0))}"
    if not view.exchanges:
        return _without_tools(view)
    facts = "\n".join(f"- {_fact(exchange)}" for exchange in view.exchanges if _is_news(exchange, view))
    quotes = "".join(
        f"\n\n{_quote(one.text)}"
        for one in view.exchanges
        if one.name in ("PersistentAgent", "mission") and not one.is_error
    )
    return (
        f"This is what the tools found:\n\n{facts}{quotes}\n\n{DISCLAIMER}: I quote the tools and conclude nothing."
    )


def _without_tools(view: View) -> str:
    missing = missing_tool(view)
    if missing:
        return f"For this I would need the tool `{missing}`, which I was not offered. {DISCLAIMER}."
    if view.tools:
        can = "Name files or a pattern such as `presets/*.md` and I look at them with the tools I was offered: "
        asks = (
            " Say: write `hello` to notes.txt, and you are asked before it is done." if "Write" in view.tools else ""
        )
        return f"Hello! {DISCLAIMER}. {can}{', '.join(sorted(view.tools))}.{asks}"
    return f"Hello! {DISCLAIMER}. I was offered no tools, so this is all I can say."


def _is_news(exchange: Exchange, view: View) -> bool:
    """Return whether the exchange adds a fact: a Glob whose files were all read does not."""
    others = [one for one in view.exchanges if one.name != "Glob"]
    return exchange.name != "Glob" or exchange.is_error or len(found_files(exchange)) != len(others) or not others


def _fact(exchange: Exchange) -> str:
    if exchange.is_error:
        return f"{exchange.name} {_subject(exchange)} failed: {_first_line(exchange.text) or 'no reason given'}"
    return _FACTS.get(exchange.name, _other)(exchange)


def _subject(exchange: Exchange) -> str:
    """Return the argument that distinguishes this call from others."""
    keys = ("file_path", "path", "pattern", "command", "description")
    return next((f"`{exchange.input[key]}`" for key in keys if key in exchange.input), "").strip()


def _glob(exchange: Exchange) -> str:
    files = found_files(exchange)
    if not files:
        return f"No file matches {_subject(exchange)}."
    named = ", ".join(f"`{path}`" for path in files[:_NAMED_AT_MOST])
    more = f" and {len(files) - _NAMED_AT_MOST} more" if len(files) > _NAMED_AT_MOST else ""
    unread = f" I read at most {READ_AT_MOST}." if len(files) > READ_AT_MOST else ""
    return f"{_subject(exchange)} matches {quantity(len(files), 'file')}: {named}{more}.{unread}"


def _report_read(exchange: Exchange) -> str:
    lines = [line for line in exchange.text.splitlines() if not _REMARK.match(line)]
    numbered = [match for line in lines if (match := _NUMBERED.match(line))]
    texts = [match[2] for match in numbered] or lines
    count = int(numbered[-1][1]) if numbered else len(texts)
    fact = f"{_subject(exchange)} has {quantity(count, 'line')}"
    title, description = _title(texts), _description(texts)
    beginning = f", and begins with “{_cut(title)}”" if title else ""
    return f"{fact}{beginning}." + (f" Its description is “{_cut(description)}”." if description else "")


def _title(lines: list[str]) -> str:
    headings = (match[1].removesuffix('"""') for line in lines if (match := _HEADING.match(line)))
    return next(headings, "") or next((line.strip() for line in lines if line.strip(" -")), "")


def _description(lines: list[str]) -> str:
    found = (match[1] for line in lines[:40] if (match := _DESCRIPTION.match(line)))
    return next(found, "").strip("\"'")


def _other(exchange: Exchange) -> str:
    count = quantity(len(exchange.text.splitlines()), "line")
    first = _first_line(exchange.text)
    return f"{exchange.name} {_subject(exchange)} returned {count}" + (
        f"; the first is “{_cut(first)}”." if first else "."
    )


_FACTS: dict[str, Callable[[Exchange], str]] = {
    "Glob": _glob,
    "Read": _report_read,
    "PersistentAgent": lambda agent: (
        f"The agent for {_subject(agent)} ({agent.input.get('preset', 'agent')}) answered with what is below."
    ),
    "mission": lambda mission: f"The mission for `{mission.input.get('signature', '')}` returned what is below.",
}


def _quote(text: str) -> str:
    """Return the beginning of an agent's answer as a quotation, without the disclaimer, which ours has already."""
    lines = [line for line in text.strip().splitlines() if DISCLAIMER not in line]
    shown = "\n".join(f"> {line}".rstrip() for line in lines[:_QUOTED_LINES]).removesuffix("\n>")
    return shown if len(lines) <= _QUOTED_LINES else f"{shown}\n> …"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _cut(text: str) -> str:
    return text if len(text) <= _QUOTED_CHARS else f"{text[:_QUOTED_CHARS].rstrip()}…"


# Summaries by the offline stand-in: the prompts, the tools used, the last answer; pure.

_LONGEST = 160  # characters of a line
_KEPT = 12  # prompts, and lines of an earlier summary's section

_EARLIER = re.compile(r"<earlier_summary>\n(.*?)\n</earlier_summary>", re.DOTALL)
_TALK = re.compile(r"<conversation>\n(.*)\n</conversation>", re.DOTALL)
_SAID = re.compile(r"^\[(user|assistant)\]\n(.+)$", re.MULTILINE)
_CALL = re.compile(r"^\(tool: (\S+)", re.MULTILINE)
_SUMMARY_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def description_of(text: str) -> str:
    """Return the first few prompts of the conversation that a request for a description quotes."""
    talk = _TALK.search(text)
    prompts = [one_line(words, _LONGEST) for who, words in _SAID.findall(talk[1] if talk else text) if who == "user"]
    return f"Talked about: {'; '.join(prompts[:3])}" if prompts else "A conversation"


def summary_of(text: str) -> str:
    """Return the summary of the conversation that a request for a summary quotes."""
    earlier, talk = _EARLIER.search(text), _TALK.search(text)
    quoted = talk[1] if talk else text
    messages = _SAID.findall(quoted)
    prompts = [one_line(words, _LONGEST) for who, words in messages if who == "user"]
    answers = [one_line(words, _LONGEST) for who, words in messages if who == "assistant"]
    before = _sections(earlier[1]) if earlier else {}
    calls = _CALL.findall(quoted)
    used = [f"{name} was used {quantity(calls.count(name), 'time')}" for name in dict.fromkeys(calls)]
    found = {
        "Goal": [*before.get("Goal", ()), *prompts],
        "Progress": [*before.get("Progress", ()), *used, *answers[-1:]],
        "Decisions": before.get("Decisions", []),
        "Next Steps": ["Answer what the user says next"],
    }
    return "\n\n".join(f"## {heading}\n{_list(found[heading])}" for heading in HEADINGS)


def _sections(summary: str) -> dict[str, list[str]]:
    pieces = _SUMMARY_SECTION.split(summary)
    return {
        heading: [line.removeprefix("- ") for line in text.strip().splitlines() if line.startswith("- ")]
        for heading, text in zip(pieces[1::2], pieces[2::2], strict=False)
    }


def _list(lines: list[str]) -> str:
    kept = lines if len(lines) <= _KEPT else [*lines[:1], *lines[-_KEPT + 1 :]]
    return "\n".join(f"- {line}" for line in dict.fromkeys(kept)) or "None."


# Titles by the offline stand-in: the first words of the prompt; pure.

_WORDS = 7


def first_words(text: str) -> str:
    """Return the beginning of the prompt that the text of a title request quotes."""
    words = quoted_prompt(text).split()
    title = " ".join(words[:_WORDS]).strip(".,;:!?")
    return title[:1].upper() + title[1:] if title else "Conversation"


PACE_VARIABLE = "PYAGENTD_OFFLINE_PACE"

_WORD = re.compile(r"\s*\S+\s*|\s+")
_MEDIA_TOKENS = 1600
_JSON_PIECE = 24  # characters of a tool's arguments per event


def offline_backend(pace_s: float | None = None) -> "OfflineBackend":
    """Return a backend that needs neither key nor network.

    Args:
        pace_s: Seconds between two deltas; None takes them from the environment.
    """
    pace_s = pace_from_environment(os.environ) if pace_s is None else pace_s
    return OfflineBackend(OfflineServer(pace_s))


class OfflineBackend(AnthropicBackend):
    """The code for a real server, with the stand-in as its server."""

    async def models(self) -> tuple[str, ...]:
        """Return the names of all known models: it stands in for each."""
        return catalog.shipped_models()


def pace_from_environment(environment: Mapping[str, str]) -> float:
    """Return the seconds between two deltas.

    Raises:
        ConfigError: The variable is not a number of seconds.
    """
    given = environment.get(PACE_VARIABLE, "").strip() or "0"
    try:
        pace = float(given)
    except ValueError:
        pace = -1.0
    if not 0 <= pace <= 10:
        raise ConfigError(f"{PACE_VARIABLE} is {given!r}", hint="It is the number of seconds per word, 0 to 10")
    return pace


class OfflineServer:
    """Answers ``POST /v1/messages`` by rules; see ``Server``."""

    def __init__(self, pace_s: float = 0.0) -> None:
        self._pace_s = pace_s
        self._serial = itertools.count(1)

    @asynccontextmanager
    async def post(self, path: str, body: Body) -> AsyncIterator[Answer]:
        """Answer a request, see ``Server``."""
        # Ids depend on the request and its number: repeatable, and unique in a process.
        sent = body.to_bytes()
        key = f"{hashlib.sha256(sent).hexdigest()[:10]}{next(self._serial):05d}"
        yield Answer({"content-type": "text/event-stream"}, self._chunks(_answer(json.loads(sent), key)))

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    async def _chunks(self, events: Iterator[Json]) -> AsyncIterator[bytes]:
        """Yield the events one by one, with a pause before each delta."""
        for event in events:
            if self._pace_s and event["type"] == "content_block_delta":
                await asyncio.sleep(self._pace_s)
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _tokens(body: Json) -> int:
    """Return the estimated tokens of a request; each picture counts as a large one."""
    media = media_of(body.get("messages") or [])
    return (len(json.dumps(body)) - sum(map(len, media))) // 4 + _MEDIA_TOKENS * len(media)


def _answer(body: Json, key: str) -> Iterator[Json]:
    view, system = view_of(body), text_of(body.get("system"))
    calls: tuple[Call, ...] = ()
    if system == prompts.TITLE_SYSTEM:
        text = first_words(view.prompt)
    elif system == prompts.SYSTEM:
        text = summary_of(view.prompt)
    elif system == prompts.DESCRIPTION_SYSTEM:
        text = description_of(view.prompt)
    elif wants_mission(body):
        text = answer(body)
    elif calls := plan(view):
        text = f"I use {' and '.join(dict.fromkeys(call.name for call in calls))} for this."
    else:
        text = report(view)
    usage = {"input_tokens": _tokens(body), "output_tokens": 1}
    message = {"id": f"msg_offline_{key}", "type": "message", "role": "assistant", "model": body.get("model", "")}
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for word in _WORD.findall(text):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
    yield {"type": "content_block_stop", "index": 0}
    for index, call in enumerate(calls, 1):
        yield from _call_block(index, f"toolu_offline_{key}_{index}", call)
    delta = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    length = len(text) + sum(len(json.dumps(call.input)) for call in calls)
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1 + length // 4}}
    yield {"type": "message_stop"}


def _call_block(index: int, call_id: str, call: Call) -> Iterator[Json]:
    block = {"type": "tool_use", "id": call_id, "name": call.name, "input": {}}
    yield {"type": "content_block_start", "index": index, "content_block": block}
    arguments = json.dumps(call.input)
    for start in range(0, len(arguments), _JSON_PIECE):
        piece = {"type": "input_json_delta", "partial_json": arguments[start : start + _JSON_PIECE]}
        yield {"type": "content_block_delta", "index": index, "delta": piece}
    yield {"type": "content_block_stop", "index": index}
