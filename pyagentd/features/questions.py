"""The ``question`` tool: the model asks the user, the run waits, and the answers are the tool's result.

The schema is common among agent programs: ``{questions} → {answers: string[][]}``, one list of strings for each
question, with labels of options or the user's own words. The question is an ask like any other: recorded before it is
shown, shown at the root session as well, still open after a restart of Emacs or the daemon, closed by an abort. If no
human can be asked, the tool returns a fixed error.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyagentd import reader
from pyagentd.errors import BadRequest, ToolError
from pyagentd.policy.action import Target
from pyagentd.runtime.approvals import Authority
from pyagentd.runtime.feature import Feature
from pyagentd.tools.spec import FOREVER_S, Args, Output, ToolContext, ToolSpec, object_schema

if TYPE_CHECKING:
    from pyagentd.runtime.run_setup import RunBuilder

NAME = "question"

UNAVAILABLE = (
    "The question tool is unavailable here: there is no interactive user to answer. Do not ask — proceed with your "
    "best assumption and state the assumption you made."
)
"""The tool's error in a run without a human, word for word."""

_DESCRIPTION = """\
Ask the user, and wait for the answer. Use it when you cannot go on well without knowing what only the user knows: \
a preference, a decision between real alternatives, a missing fact. Ask everything you need at once. Offer options \
where you can; the user may always answer in other words. Answers come in the order of the questions, each a list \
of strings: labels of options, or the user's own words; an empty list is a question that was left open."""

_SCHEMA: Mapping[str, Any] = object_schema(
    {
        "questions": {
            "type": "array",
            "minItems": 1,
            "maxItems": 10,
            "items": object_schema(
                {"question": {"type": "string", "minLength": 1, "description": "The whole question"}},
                {
                    "header": {"type": "string", "description": "A word or two that name it, such as Database"},
                    "options": {
                        "type": "array",
                        "maxItems": 20,
                        "items": object_schema(
                            {"label": {"type": "string", "minLength": 1, "description": "What the answer says"}},
                            {"description": {"type": "string", "description": "What choosing it means"}},
                        ),
                    },
                    "multi_select": {"type": "boolean", "description": "Whether several options may be chosen"},
                },
            ),
        }
    }
)


class Question(Feature):
    """Offers the ``question`` tool."""

    tool_names = (NAME,)

    def tools_for(self, run: "RunBuilder") -> Sequence[ToolSpec]:
        """Return the tool for a run, with the authority to ask its human."""
        return (question(run.authority),)


def question(authority: Authority) -> ToolSpec:
    """Return the tool for one run."""

    async def run(args: Args, ctx: ToolContext) -> Output:
        if not authority.interactive:
            raise ToolError(UNAVAILABLE)
        action = f"tool:{NAME}:{_detail(args)}"
        answer = await authority.ask_question(NAME, action, _fields(args, ctx))
        if answer.decision == "deny":
            why = f" They say: {answer.reason}" if answer.reason else ""
            raise ToolError(f"The user declined to answer.{why} Go on without, or stop and say what you lack.")
        return Output(text=json.dumps({"answers": answer.answers or []}, ensure_ascii=False))

    return ToolSpec(
        name=NAME,
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        kind="meta",
        repeatable=True,
        run=run,
        describe=lambda args, ctx: Target(detail=_detail(args)),
        timeout_s=FOREVER_S,
    )


def checked_answers(questions: Sequence[Mapping[str, Any]], text: str) -> tuple[tuple[str, ...], ...]:
    """Parse the answers in ``text``, JSON: a list for each question, of labels or other words.

    An answer to one of several questions may be left out (null, [] or ""); a string counts as a list of one. The
    user's own words may follow a picked option.

    Raises:
        BadRequest: They do not answer these questions; the message says which and why.
    """
    try:
        given = reader.parse(text)
    except ValueError as error:
        raise BadRequest(f"The answers are not JSON: {error}", hint=_usage(questions)) from None
    if not isinstance(given, list) or len(given) != len(questions):
        raise BadRequest(f"{len(questions)} answers are needed, a list for each question", hint=_usage(questions))
    pairs = zip(questions, given, strict=True)
    answers = tuple(_answers_to(number, one, answer) for number, (one, answer) in enumerate(pairs, 1))
    if not any(answers):
        raise BadRequest("No question was answered", hint="Answer one question at least, or decline with deny")
    return answers


def _answers_to(number: int, question: Mapping[str, Any], reply: object) -> tuple[str, ...]:
    reply = [] if reply is None else [reply] if isinstance(reply, str) else reply
    if not isinstance(reply, list) or not all(isinstance(each, str) for each in reply):
        raise BadRequest(f"The answer to question {number} is not a list of strings")
    words = tuple(dict.fromkeys(filter(None, (each.strip() for each in reply))))
    labels = [option["label"] for option in question.get("options") or ()]
    picked = [word for word in words if word in labels]
    if not question.get("multi_select") and (len(picked) > 1 or len(words) - len(picked) > 1):
        raise BadRequest(
            f"Question {number} takes one option, got {len(words)}: {', '.join(words)}",
            hint="One of its options, words of your own, or both",
        )
    return words


def _usage(questions: Sequence[Mapping[str, Any]]) -> str:
    offered = (question.get("options") or [{"label": "my words"}] for question in questions)
    return f"Such as {json.dumps([[str(options[0]['label'])] for options in offered], ensure_ascii=False)}"


def _detail(args: Args) -> str:
    """Return the questions on one line: the first one, and the number of others."""
    first, *others = args["questions"]
    line = " ".join(str(first["question"]).split())
    return f"{line} (and {len(others)} more)" if others else line


def _fields(args: Args, ctx: ToolContext) -> dict[str, Any]:
    return {
        "tool_call_id": ctx.call_id,
        "detail": _detail(args),
        "reason": "",
        "preview": "",
        "choices": ["answer", "deny", "abort"],
        "questions": [_question_row(each) for each in args["questions"]],
    }


def _question_row(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question for clients, with every field present."""
    return {
        "question": question["question"],
        "header": question.get("header") or "",
        "options": [
            {"label": each["label"], "description": each.get("description") or ""}
            for each in question.get("options") or ()
        ],
        "multi_select": bool(question.get("multi_select")),
    }
