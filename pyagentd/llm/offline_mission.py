"""How the offline stand-in fulfils a mission: one program that looks, one that returns; pure.

It is stateless: what it is asked, which tools there are and what has to come back are read from the prompt that a
mission's model is told, and how far it is from the answers that were given so far.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pyagentd.llm.offline_targets import named_paths, targets_of
from pyagentd.llm.offline_types import expression, shape_of
from pyagentd.llm.offline_view import text_of

_SECTION = re.compile(r"^# (?P<title>[^\n]+)\n\n(?P<text>.*?)(?=^# |\Z)", re.MULTILINE | re.DOTALL)
_TOOL = re.compile(r"^([A-Za-z_][\w-]*)\(", re.MULTILINE)
_TYPE = re.compile(r"```\n(.*?)\n```", re.DOTALL)
_LIST = re.compile(r"ctx/([\w-]+)`?[^\n]*?\[")
_COMMAND = re.compile(r"\b(?:run|execute)\s+(?:the\s+command\s+)?`([^`\n]+)`", re.IGNORECASE)
_AGENT = re.compile(r"\b(sub-?agents?|agents?|explorers?|delegat\w*)\b", re.IGNORECASE)
_MOST = 20  # files that are read

_FILES = """\
(let [names (fn [text] (filterv (fn [line] (and (not (blank? line)) (not (starts-with? line "["))))
                                (split-lines text)))
      last-of (fn [line] (last (split line "\\t")))
      read (fn [path]
             (let [lines (names (call "Read" {{:file_path path}}))]
               {{:path path :lines (count lines) :text (last-of (first lines))}}))
      paths {paths}]
  {{:found (mapv read (take {most} paths))}})"""


def wants_mission(body: Mapping[str, Any]) -> bool:
    """Return whether a request is one for the next program of a mission."""
    return not body.get("tools") and "# PTC-Lisp" in text_of(body.get("system"))


def answer(body: Mapping[str, Any]) -> str:
    """Return what the stand-in says: a few words and a program."""
    parts = sections(text_of(body.get("system")))
    messages = body.get("messages") or []
    said = sum(message["role"] == "assistant" for message in messages)
    last = text_of(messages[-1]["content"]) if messages else ""
    if said and last.startswith("Error"):
        return _block("That failed, and I cannot think of another way.", _failed(last))
    prompt = text_of(messages[0]["content"]) if messages else ""
    looking = _looking(parts, prompt) if not said else ""
    if looking:
        return _block("First I look.", looking)
    return _block("This is what was found.", _returning(parts, found=bool(said)))


def sections(system: str) -> dict[str, str]:
    """Return the sections of a mission's prompt by title."""
    return {found["title"].strip(): found["text"].strip() for found in _SECTION.finditer(system)}


def _looking(parts: Mapping[str, str], prompt: str) -> str:
    """Return the program that calls the tools which the mission calls for, "" when there are none."""
    tools = set(_TOOL.findall(parts.get("Available Tools", "")))
    if "Bash" in tools and (commands := _COMMAND.findall(prompt)):
        calls = " ".join(f'(call "Bash" {{:command {json.dumps(command)}}})' for command in commands)
        return f'{{:found (mapv (fn [text] {{:path "" :text text :lines (count (split-lines text))}}) [{calls}])}}'
    if "PersistentAgent" in tools and _AGENT.search(prompt):
        return _agent(prompt)
    if "Read" not in tools:
        return ""
    targets = targets_of(prompt)
    if _lists(parts) and not named_paths(prompt):
        return ""
    globs = " ".join(f'(names (call "Glob" {{:pattern {json.dumps(glob)}}}))' for glob in targets.globs)
    known = json.dumps([*targets.files])
    if globs and "Glob" in tools:
        return _FILES.format(paths=f"(into {known} (concat {globs}))", most=_MOST)
    return _FILES.format(paths=known, most=_MOST) if targets.files else ""


def _agent(prompt: str) -> str:
    """Return the program that has an agent look."""
    told = f"Find and read {targets_of(prompt)}, and report the names and the number of lines."
    return (
        '(let [text (call "PersistentAgent" {:preset "explorer" :description "look at it"\n'
        f"                                     :prompt {json.dumps(told)}}})]\n"
        '  {:found [{:path "" :text text :lines (count (split-lines text))}]})'
    )


def _lists(parts: Mapping[str, str]) -> list[str]:
    return _LIST.findall(parts.get("Data Inventory", ""))


def _returning(parts: Mapping[str, str], *, found: bool) -> str:
    """Return the program that ends the mission."""
    stated = _TYPE.search(parts.get("Expected Output", ""))
    value = expression(shape_of(stated[1]) if stated else "any")
    lists = _lists(parts)
    known = "ctx/found" if found else f"ctx/{lists[0]}" if lists else "[]"
    return f'(let [found {known}]\n  (call "return" {value}))'


def _failed(message: str) -> str:
    line = message.splitlines()[0][:200]
    return f'(call "fail" {{:reason :offline :message {json.dumps(line, ensure_ascii=False)}}})'


def _block(words: str, program: str) -> str:
    return f"{words}\n\n```clojure\n{program}\n```"
