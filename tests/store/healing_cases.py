"""What happens to session files outside, as functions of a file's text; ``test_healing`` says what is read then."""

from __future__ import annotations

import re
from collections.abc import Callable

from pyagentd.store.document.text import Document, Settings, Span, format_file, parse
from tests.store.talk import Call, Step, Talk, Turn

SETTINGS = Settings(model="claude-sonnet-4-6", backend="Claude", tools=("Bash", "Read"), temperature=1.0)

COUNT = Turn(
    prompt="How many files are there?",
    steps=(
        Step(
            reasoning="Count them, both ways.",
            texts=("I count them in two ways at once.",),
            calls=(
                Call(input={"command": "ls | wc -l"}, result="7\n"),
                Call(input={"command": "find . -type f"}, result="./a.md\n./b.md\n"),
            ),
            order=1,
        ),
        Step(texts=("There are **seven** files:\n\n* two notes that you wrote yourself\n* five that came with it",)),
    ),
)
READ = Turn(
    prompt="What is in a.md?",
    steps=(
        Step(calls=(Call(name="Read", input={"path": "a.md"}, result="     1\t# Title\n     2\t\n     3\tText  "),)),
        Step(texts=("A title and one line of text.",)),
    ),
)
AGAIN = Turn(prompt="And in b.md?", steps=(Step(reasoning="Guess.", texts=("OK",)),))


def talk(*turns: Turn) -> Talk:
    """The conversation of all cases, or only some turns of it."""
    return Talk(turns or (COUNT, READ, AGAIN))


def file_of(made: Talk) -> str:
    """Its file."""
    return format_file(Document(body=made.document.body, spans=made.document.spans, settings=SETTINGS))


def _block_at(text: str) -> int:
    return text.rindex("<!-- Local Variables")


def lost_block(text: str) -> str:
    return text[: _block_at(text)]


def torn_block(text: str) -> str:
    return text[: text.index("(response ") + 30]


def block_cut_in_the_middle(text: str) -> str:
    at = text.index("(response ")
    return text[:at] + text[at + 80 :].replace(" -->\n", "\n", 1)


def text_below_the_block(text: str) -> str:
    return text + "\nAnd in c.md?\n"


def second_block_of_stock_gptel(text: str) -> str:
    """An Emacs that did not see the block, which begins more than 3000 characters before the end, added one."""
    lines = ["Local Variables:", 'gptel-system-prompt: "Be terse.\\nAlways."', "gptel--bounds: nil", "End:"]
    return text + "\n" + "".join(f"<!-- {line} -->\n" for line in lines)


def second_block_with_one_answer(text: str) -> str:
    """The same, and then stock gptel answered one prompt more."""
    body = parse(text).body + "And in c.md?\n\n"
    bounds = f"((response ({len(body) + 1} {len(body) + 9})))"
    old = text[_block_at(text) :]
    lines = ["Local Variables:", "gptel-model: other", f"gptel--bounds: {bounds}", "End:"]
    return f"{body}Nothing.\n\n### \n\n{old}\n" + "".join(f"<!-- {line} -->\n" for line in lines)


def block_of_gptels_save_hook(text: str) -> str:
    """gptel's hook wrote its block into the text of our editor, which took it for a quotation."""
    body, block = parse(text).body, text[_block_at(text) :]
    bounds = re.search(r"gptel--bounds: .*(?= -->)", block)
    assert bounds is not None
    lines = ["Local Variables:", "gptel-model: other", 'gptel-system-prompt: "Be terse."', bounds[0], "End:"]
    guard = "<!-- Local Variables: -->\n<!-- End: -->\n"
    return body + "\n" + "".join(f";; {line}\n" for line in lines) + f"\n\n{guard}\n{block}"


def block_left_in_the_middle(text: str) -> str:
    """Text was added below the block, and then stock gptel, which did not see it, added another one."""
    lines = ["Local Variables:", "gptel-model: other", "gptel--bounds: nil", "End:"]
    return text + "\nAnd in c.md?\n\n" + "".join(f"<!-- {line} -->\n" for line in lines)


def bounds_out_of_range(text: str) -> str:
    """The last turn was cut out of the text by something that left the block alone."""
    at = text.index("And in b.md?")
    return text[:at] + "\n\n" + text[_block_at(text) :]


def edited_elsewhere(text: str) -> str:
    return text.replace("How many", "Please tell me how many").replace("one line of text", "a single line")


def reformatted(text: str) -> str:
    """What formatters of Markdown do: other bullets and fences, lines wrapped anew, no trailing blanks."""
    body, block = text[: _block_at(text)], text[_block_at(text) :]
    body = body.replace("**seven** files", "_seven_\nfiles").replace("* ", "- ").replace("```", "~~~")
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", body, flags=re.MULTILINE)) + block


def merge_conflict(text: str) -> str:
    ours = "A title and one line of text."
    return text.replace(ours, f"<<<<<<< HEAD\n{ours}\n=======\nA title.\n>>>>>>> other")


def older_than_the_log(_text: str) -> str:
    return file_of(talk(COUNT))


def newer_than_the_log(text: str) -> str:
    body = parse(text).body + "And in c.md?\n\nNothing.\n\n### "
    at = body.index("Nothing.")
    return format_file(
        Document(body=body, spans=(*parse(text).spans, Span(at, at + 8, "response")), settings=SETTINGS)
    )


def windows_line_ends(text: str) -> str:
    return text.replace("\n", "\r\n")


def byte_order_mark(text: str) -> str:
    return "\ufeff" + text


def no_final_newline(text: str) -> str:
    return text.removesuffix("\n")


def saved_by_stock_gptel(text: str) -> str:
    """Its own order of bounds, the system prompt, and one id for all calls of a tool (by name)."""
    first, second = re.findall(r'\d+ \d+ "(toolu_\d+)"', text)[:2]
    lines = text.replace(f'"{second}"', f'"{first}"').split("\n")
    at = next(number for number, line in enumerate(lines) if "gptel--tool-names" in line)
    return "\n".join([*lines[:at], '<!-- gptel-system-prompt: "Be terse." -->', *lines[at:]])


CASES: tuple[Callable[[str], str], ...] = (
    lost_block,
    torn_block,
    block_cut_in_the_middle,
    text_below_the_block,
    second_block_of_stock_gptel,
    second_block_with_one_answer,
    block_of_gptels_save_hook,
    block_left_in_the_middle,
    bounds_out_of_range,
    edited_elsewhere,
    reformatted,
    merge_conflict,
    older_than_the_log,
    newer_than_the_log,
    windows_line_ends,
    byte_order_mark,
    no_final_newline,
    saved_by_stock_gptel,
)
