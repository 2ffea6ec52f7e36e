"""A branch as a file: what each format holds, and that a page does nothing but be read."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.errors import BadRequest
from pyagentd.store import charts, paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.files import Hunk, apply_edit
from pyagentd.store.document.hidden import change_roles, hide, rebuild, variants
from pyagentd.store.document.reconcile import align
from pyagentd.store.document.text import Document, Settings, Span, format_file, parse
from pyagentd.store.export.export import Source, export_text, lines, read_source
from pyagentd.store.journal import Row, read_rows
from tests.store.places import new_agent, new_session
from tests.store.talk import Call, Step, Talk, Turn, talks, texts
from tests.store.test_adopt import plain

GOLDEN = Path(__file__).parent / "golden"
PNG = b"\x89PNG\r\n\x1a\n rest"
SVG = "{http://www.w3.org/2000/svg}"
FILLED = charts.context("s" * 100, [], [{"role": "user", "content": "x" * 300}], 1000, 2000)
SETTINGS = Settings(model="claude-sonnet-4-6", backend="Claude", tools=("Read", "Bash"), temperature=1.0)
SPAWN = {"preset": "explorer", "description": "find module", "prompt": "Find it."}
ANSWER = """Two things:

| file | lines |
|:-----|------:|
| `a.py` | 10 |
| b < c | 2 |

1. **First**, see [the docs](https://example.org/?a=1&b=2).
2. ~~Second~~

```python
def f(x):
    return x < 1 and "y" & 2
```

> quoted

# A heading

![a picture](files/a.png)
"""


def talk(times: int = 1) -> Talk:
    made = Talk(
        [
            Turn(
                prompt="Look at a.py\nand at <b>all</b> presets",
                steps=(
                    Step(
                        reasoning="Two files, *probably*.",
                        texts=("I look.",),
                        calls=(
                            Call(name="Read", input={"path": "a.py", "limit": None}, result="1\tx = '<&>'\n2\ty"),
                            Call(
                                name="Bash", input={"command": 'echo "a\nb"'}, result="no\x1b[0m\x07", is_error=True
                            ),
                        ),
                    ),
                    Step(calls=(Call(name="PersistentAgent", input=SPAWN, result="It is in `m.py`."),)),
                    Step(texts=(ANSWER,)),
                ),
            ),
            Turn(prompt="And now?", error="The server is overloaded"),
        ]
        * times
    )
    made.document = replace(made.document, settings=SETTINGS)
    return made


def source(made: Talk, **fields: Any) -> Source:
    conversation = made.conversation
    conversation.session = {"id": "demo-20260205123052", "title": "A <demo>", "created_at": 1}
    values = {"created": "2026-02-05T12:30:52Z", "preset": "explorer", "images": {"files/a.png": PNG}} | fields
    return Source(session_id="demo-20260205123052", document=made.document, conversation=conversation, **values)


def demo() -> Source:
    child = Talk([Turn(prompt="Find it.", steps=(Step(texts=("It is in `m.py`.",)),))])
    agent = replace(source(child), session_id="explorer-20260205123053-find-module", agents=(source(Talk()),))
    above = talk()
    call = next(part for part in above.conversation.parts.values() if part.type == "tool-PersistentAgent")
    agent.conversation.session = {"parent_call_id": call.data["toolCallId"]}
    return source(above, agents=(agent,), filled=FILLED)


def text_of(made: Source, format: str) -> str:
    return export_text(made, format).text


@pytest.mark.parametrize("format", ["md", "json", "jsonl", "html"])
def test_every_format_is_as_it_was(format: str) -> None:
    assert text_of(demo(), format) == (GOLDEN / f"export.{format}").read_text()


def test_every_golden_file_is_claimed() -> None:
    claims = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    for file in GOLDEN.iterdir():
        assert f'"{file.name}"' in claims or file.stem == "export", f"no test reads {file.name}"


def test_another_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadRequest, match="md, json, jsonl, html"):
        export_text(demo(), "pdf")


class TestMarkdown:
    def test_it_is_the_document_and_reads_back_with_equal_roles(self) -> None:
        made = talk()
        assert parse(text_of(source(made), "md")) == made.document

    def test_roles_the_document_lost_are_in_the_export(self, tmp_path: Path) -> None:
        ref, made = new_session(tmp_path), talk()
        write(ref.branch_dir, made, replace(made.document, spans=()))
        assert parse(text_of(read_source(ref), "md")).spans == made.document.spans

    def test_a_document_without_settings_gets_those_of_its_preset(self) -> None:
        made = Talk([Turn(prompt="Hi", steps=(Step(texts=("Hello",)),))])
        assert parse(export_text(source(made), "md", SETTINGS).text).settings == SETTINGS
        other = replace(made.document, settings=Settings(model="own"))
        made.document = other
        assert parse(export_text(source(made), "md", SETTINGS).text).settings == other.settings


class TestRecord:
    def test_lines_are_the_session_then_messages_each_followed_by_its_parts(self) -> None:
        rows = [json.loads(line) for line in text_of(demo(), "jsonl").splitlines()]
        assert rows[0] == {"type": "session", "data": demo().conversation.session}
        owner = ""
        for row in rows[1:]:
            if row["type"] == "message":
                owner, index = row["data"]["id"], -1
            else:
                assert row["data"]["message_id"] == owner and row["data"]["index"] > index
                index = row["data"]["index"]

    def test_both_hold_what_the_log_holds_with_the_users_edits(self) -> None:
        made = talk()
        body = made.document.body.replace("I look.", "I looked.")
        start = body.index("I looked.")
        shifted = [
            s._replace(start=s.start + 2 * (s.start > start), end=s.end + 2 * (s.end > start)) for s in spans(made)
        ]
        made.document = replace(made.document, body=body, spans=tuple(shifted))
        for edit in align(made.document, made.conversation).edits:
            made.record("edit", **edit)
        given = source(made)
        record = json.loads(text_of(given, "json"))
        assert record == given.conversation.canonical()
        assert "I looked." in str(record) and "I look.'" not in str(record)
        assert text_of(given, "jsonl") == "".join(lines(record))

    def test_what_the_user_removed_is_marked(self) -> None:
        made = Talk([Turn(prompt=prompt, steps=(Step(texts=(prompt.upper(),)),)) for prompt in ("one", "two")])
        end = made.document.body.index("### two")
        made.document = Document(
            body=made.document.body[:end], spans=tuple(span for span in spans(made) if span.end <= end)
        )
        for edit in align(made.document, made.conversation).edits:
            made.record("edit", **edit)
        messages = json.loads(text_of(source(made), "json"))["messages"]
        assert [item["message"]["metadata_json"].get("hidden", False) for item in messages[:3]] == [
            False,
            False,
            True,
        ]
        assert messages[3]["parts"][1]["data_json"]["metadata"] == {"hidden": True}
        assert "two" not in text_of(source(made), "html").split("<main>")[1]

    def test_what_no_log_has_stands_where_the_document_has_it(self) -> None:
        made = Talk([Turn(prompt=prompt, steps=(Step(texts=(prompt.upper(),)),)) for prompt in ("one", "two")])
        added = "### inserted\n\nINSERTED\n\n"
        at = made.document.body.index("### two")
        role = at + added.index("INSERTED")
        behind = [s._replace(start=s.start + len(added), end=s.end + len(added)) for s in spans(made) if s.start > at]
        made.document = Document(
            body=made.document.body[:at] + added + made.document.body[at:] + "a draft",
            spans=(*(s for s in spans(made) if s.start < at), Span(role, role + 8, "response"), *behind),
        )
        made_export = export_text(source(made), "json")
        messages = json.loads(made_export.text)["messages"]
        said = [
            part["data_json"].get("text") for item in messages for part in item["parts"] if part["type"] == "text"
        ]
        assert said == ["one", "ONE", "inserted", "INSERTED", "two", "TWO", "a draft"]
        assert [item["message"]["created_at"] for item in messages] == [1] * 7
        assert messages[-1]["message"]["metadata_json"] == {"origin": "draft"}
        assert made_export.notes == (
            "3 messages of the document are in no log; they have new ids and the time of what precedes them",
        )

    def test_half_a_surrogate_pair_is_written_as_json_can(self) -> None:
        made = Talk([Turn(prompt="Hi", steps=(Step(texts=("half \ud83d",)),))])
        text_of(source(made), "jsonl").encode()
        assert json.loads(text_of(source(made), "json")) == source(made).conversation.canonical()

    @given(talks)
    def test_nothing_of_a_conversation_is_missing(self, turns: list[Turn]) -> None:
        made = Talk(turns)
        assert json.loads(text_of(source(made), "json")) == json.loads(
            json.dumps(source(made).conversation.canonical())
        )


def spans(made: Talk) -> tuple[Span, ...]:
    return made.document.spans


# -- the page --------------------------------------------------------------------------------------------------

HOSTILE = [
    "</script><img src=x onerror=alert(1)><script>alert(1)</script>",
    "</pre></details></div><iframe src='javascript:alert(1)'></iframe>",
    "<!-- --><style>*{display:none}</style><svg/onload=alert(1)>",
    "[a](javascript:alert(1)) <javascript:alert(1)> [b](data:text/html;base64,AA) [c](vbscript:x) [d](//evil.test)",
    "![x](https://evil.example/pixel.png) ![y](javascript:alert(1)) ![z](data:image/svg+xml,<svg/onload=alert(1)>)",
    '![" onerror="alert(1)](files/a.png) [x](https://e.example/"onclick="alert(1))',
    '```html" onmouseover="alert(1)\n<b>x</b>\n```',
    "&lt;b&gt; &amp; &#60;script&#62; \x00\x1b[31m\x0b\ufffe",
    "]]> <![CDATA[ x ]]> <?php echo 1 ?>",
    "[a <https://e.example> b](files/x) [a <other:x> b](https://e.example)",
]


class Elements(HTMLParser):
    """All elements with their attributes, as a browser's parser sees them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def assert_harmless(page: str) -> ET.Element:
    """The page is well-formed, loads nothing and runs nothing; return its root."""
    allowed = (
        "a b blockquote body br code dd del details div dl dt em footer h1 h2 h3 h4 h5 h6 head header hr html img li"
    )
    allowed += " main meta nav ol p pre s section span strong style summary table tbody td th thead time title tr ul"
    allowed += " figure svg g rect text defs pattern path circle"  # charts
    assert page.count("<svg") == page.count("<figure>\n<svg ")
    for tag, attributes in Elements(page).found:
        assert tag in allowed.split(), tag
        assert not [name for name in attributes if name.startswith("on") or name in ("srcset", "formaction")]
        if tag == "img":
            assert str(attributes["src"]).startswith("data:image/")
        if "href" in attributes:
            assert re.match(r"(https?:|mailto:|#)", str(attributes["href"]), re.IGNORECASE)
        assert attributes.get("style") is None or re.fullmatch(r"text-align:\w+", str(attributes["style"]))
    assert page.count("<style>") == 1 and "url(" not in page.split("</style>")[0]
    return ET.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


def hostile_talk(text: str) -> Talk:
    call = Call(name=text[:40], input={text: text}, result=text)
    agent_call = Call(
        name="PersistentAgent", input={"preset": text, "description": text, "prompt": text}, result=text
    )
    step = Step(reasoning=text, texts=(text,), calls=(call, agent_call))
    return Talk([Turn(prompt=text, steps=(step,), error=text)])


class TestPage:
    @pytest.mark.parametrize("text", HOSTILE)
    def test_whatever_a_conversation_holds_is_text(self, text: str) -> None:
        made = hostile_talk(text)
        made.document = replace(made.document, settings=Settings(model=text))
        given = source(made, created=text, preset=text)
        given.conversation.session["title"] = text
        assert_harmless(text_of(replace(given, agents=(given,)), "html"))

    @given(texts | st.lists(st.sampled_from(HOSTILE) | texts, max_size=3).map("".join))
    def test_no_text_breaks_the_page(self, text: str) -> None:
        assert_harmless(text_of(source(hostile_talk(text or "x")), "html"))

    def test_a_link_has_no_other_inside(self) -> None:
        text = "[see <https://a.example> there](https://b.example) [see <https://c.example>](files/gone)"
        root = assert_harmless(text_of(source(Talk([Turn(prompt=text)])), "html"))
        links = [e.attrib["href"] for e in root.iter(tag("a"))]
        assert links == ["#prompt-1", "https://b.example", "https://c.example"]

    def test_the_page_forbids_itself_scripts_and_requests(self) -> None:
        root = assert_harmless(text_of(demo(), "html"))
        policy = next(e for e in root.iter(tag("meta")) if "Content-Security-Policy" in e.attrib.values())
        assert policy.attrib["content"].startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")

    def test_it_says_what_it_is_and_lists_the_prompts(self) -> None:
        root = assert_harmless(text_of(demo(), "html"))
        assert words(next(root.iter(tag("title")))) == words(next(root.iter(tag("h1")))) == "A <demo>"
        facts = [words(item) for item in next(root.iter(tag("ul")))]
        assert facts == [
            "2026-02-05 12:30 UTC", "claude-sonnet-4-6", "preset explorer", "2 prompts", "3 tool calls", "1 agent",
        ]  # fmt: skip
        links = {item.attrib["href"]: words(item) for item in next(root.iter(tag("nav"))).iter(tag("a"))}
        assert links == {
            "#prompt-1": "Look at a.py",
            "#prompt-2": "And now?",
            "#agent-explorer-20260205123053-find-module": "explorer: find module",
        }
        places = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
        assert len(places) == len(set(places)) and {link[1:] for link in links} <= set(places)

    def test_tool_calls_reasoning_and_agents_are_folded_under_what_they_are(self) -> None:
        root = assert_harmless(text_of(demo(), "html"))
        assert [words(e) for e in root.iter(tag("summary"))] == [
            "Reasoning Two files, *probably*.",
            "Read a.py",
            'Bash echo "a · failed',
            "PersistentAgent explorer find module",
            "explorer: find module 2026-02-05 12:30 UTC",
            "A <demo> 2026-02-05 12:30 UTC",
            "Look at a.py 0.0 s",
            "What fills the context, in tokens ",
        ]
        assert not [e for e in root.iter(tag("details")) if "open" in e.attrib]
        pre = [words(e) for e in root.iter(tag("pre"))]
        assert "\n1\tx = '<&>'\n2\ty" in pre and 'echo "a\nb"' in "".join(pre) and "\nThe server is overloaded" in pre
        assert "\nno␇" in pre, "colours of a terminal are gone, other controls can be seen"

    def test_a_call_leads_to_the_agent_that_it_spawned(self) -> None:
        calls = (Call(name="task", result="One."), Call(name="mission", result="Two."))
        above = Talk([Turn(prompt="Go", steps=(Step(calls=calls),))])
        ids = [part.data["toolCallId"] for part in above.conversation.parts.values() if part.is_tool]
        agents = [replace(source(Talk()), session_id=f"agent-{number}") for number in (2, 1)]
        for agent, id in zip(agents, reversed(dict.fromkeys(ids)), strict=True):
            agent.conversation.session = {"parent_call_id": id}
        root = assert_harmless(text_of(source(above, agents=tuple(agents)), "html"))
        links = [link.attrib["href"] for link in root.iter(tag("a")) if words(link) == "Its conversation"]
        assert links == ["#agent-agent-1", "#agent-agent-2"]

    def test_its_charts_are_those_of_reports_each_complete_in_itself(self) -> None:
        again = source(talk(2), filled=FILLED)
        root = assert_harmless(text_of(again, "html"))
        pictures = list(root.iter(f"{SVG}svg"))
        titles = [words(next(each.iter(f"{SVG}title"))) for each in pictures]
        assert titles == ["How the turn went", "How the turn went", "What fills the context, in tokens"]
        shown = [words(each) for each in pictures[-1].iter(f"{SVG}text")]
        assert shown == [word for row in FILLED.rows for word in (row.label, row.value)]
        for each in pictures:
            defined = {f"url(#{pattern.attrib['id']})" for pattern in each.iter(f"{SVG}pattern")}
            assert defined == {fill for e in each.iter() if "url" in (fill := e.get("fill", ""))}
        ids = [each.attrib["id"] for each in root.iter(f"{SVG}pattern")]
        assert len(ids) == len(set(ids)) == 4

    def test_an_attached_image_is_in_the_page(self) -> None:
        root = assert_harmless(text_of(demo(), "html"))
        (image,) = root.iter(tag("img"))
        assert image.attrib == {"src": "data:image/png;base64,iVBORw0KGgogcmVzdA==", "alt": "a picture"}

    def test_a_call_that_nobody_can_read_is_shown_as_it_stands(self) -> None:
        doc = Document(body="### Go\n\n(:name broken <b>", spans=(Span(8, 25, "tool", "toolu_1"),))
        page = text_of(Source(session_id="s", document=doc, conversation=Conversation()), "html")
        assert "(:name broken &lt;b&gt;" in page
        assert_harmless(page)

    def test_other_text_that_the_model_does_not_see_is_folded(self) -> None:
        doc = Document(body="### Go\n\n*Aside*", spans=(Span(8, 15, "ignore"),))
        root = assert_harmless(text_of(Source(session_id="s", document=doc, conversation=Conversation()), "html"))
        assert [words(e) for e in root.iter(tag("summary"))] == ["Not shown to the model"]
        assert [words(e) for e in root.iter(tag("em"))] == ["Aside"]

    def test_an_empty_session_has_a_page_too(self) -> None:
        assert_harmless(text_of(Source(session_id="s", document=Document(), conversation=Conversation()), "html"))


def tag(name: str) -> str:
    return f"{{http://www.w3.org/1999/xhtml}}{name}"


def words(element: ET.Element) -> str:
    return "".join(element.itertext())


# -- from disk -------------------------------------------------------------------------------------------------


def write(branch_dir: Path, made: Talk, document: Document | None = None) -> None:
    """Put a talk where a branch keeps it."""
    rows = [{"seq": row.seq, "type": row.type, "data": row.data} for row in made.rows]
    paths.journal_file(branch_dir).write_text("".join(json.dumps(row) + "\n" for row in rows))
    paths.session_file(branch_dir).write_text(format_file(document or made.document))


def test_a_branch_is_read_with_its_agents_and_theirs(tmp_path: Path) -> None:
    ref = new_session(tmp_path)
    child = new_agent(ref)
    grandchild = new_agent(child, "look closer")
    for place in (ref, child, grandchild):
        write(place.branch_dir, talk())
    read = read_source(ref)
    assert (read.session_id, read.created) == (ref.session_id, "2026-02-05T12:30:52Z")
    assert [agent.session_id for agent in read.agents] == [child.session_id]
    assert [agent.session_id for agent in read.agents[0].agents] == [grandchild.session_id]
    assert read.document == talk().document and read.images == {}


@pytest.mark.parametrize("format", ["json", "jsonl", "acp", "html"])
def test_an_export_has_what_the_user_made_of_the_text(tmp_path: Path, format: str) -> None:
    ref = new_session(tmp_path)
    steps = (Step(texts=("Noted: hunter2",), calls=(Call(result="It is hunter2"),)), Step(texts=("Fine",)))
    last = Turn(prompt="Thanks", steps=(Step(texts=("!",)),))
    made = Talk([Turn(prompt="The password is hunter2", steps=steps), last])
    body = made.document.body.replace("hunter2", "*******")
    write(ref.branch_dir, made, replace(made.document, body=body))
    text = text_of(read_source(ref), format)
    if format.startswith("json"):  # the log has the call as it was, and beside it what the user made of it
        assert (text.count("hunter2"), '"output": "It is hunter2"' in text) == (1, True)
    else:
        assert "hunter2" not in text
    assert "Noted: *******" in text and "It is *******" in text and "The password is *******" in text


def test_messages_come_in_the_order_of_the_conversation_wherever_the_clock_went() -> None:
    made = Talk([Turn(prompt=f"Question {n}", steps=(Step(texts=(f"Answer {n}",)),)) for n in range(2)])
    made.rows = [
        row._replace(data={**row.data, "created_at": 1000 - row.seq}) if row.type == "message" else row
        for row in made.rows
    ]
    text = text_of(source(made), "json")
    assert re.findall(r"Question \d|Answer \d", text) == ["Question 0", "Answer 0", "Question 1", "Answer 1"]


def test_lines_of_the_protocol_leave_out_what_the_user_removed_or_took_back(tmp_path: Path) -> None:
    ref = new_session(tmp_path)
    made = Talk([Turn(prompt=f"Question {n}", steps=(Step(texts=(f"Answer {n}",)),)) for n in range(3)])
    before = made.conversation
    rewound = [message for message in before.messages.values() if "2" in message.text]
    for row in hide(rewound, by="rewind", after="", now_ms=1):
        made.rows.append(Row(len(made.rows) + 1, "message", row))
    shown = change_roles(made.document, before, made.conversation)
    start = shown.body.index("Answer 0")
    write(ref.branch_dir, made, apply_edit(shown, (Hunk(start, start + len("Answer 0"), ""),)))
    text = text_of(read_source(ref), "acp")
    assert re.findall(r"Question \d|Answer \d", text) == ["Question 0", "Question 1", "Answer 1"]


def test_only_images_among_the_attachments_are_read(tmp_path: Path) -> None:
    ref = new_session(tmp_path)
    files = paths.files_dir(ref.branch_dir)
    files.mkdir()
    (files / "a b.png").write_bytes(PNG)
    (tmp_path / "secret.png").write_bytes(PNG)
    (files / "out.png").symlink_to(tmp_path / "secret.png")
    links = ["files/a%20b.png", "files/missing.png", "files/../preset.md", "files/out.png", "/etc/passwd"]
    made = Talk([Turn(prompt="Hi", steps=(Step(texts=(" ".join(f"![x]({link})" for link in links),)),))])
    write(ref.branch_dir, made)
    assert read_source(ref).images == {"files/a%20b.png": PNG}


@given(talks)
def test_an_exported_conversation_means_the_same_again(turns: list[Turn]) -> None:
    made = Talk(turns)
    again = parse(text_of(source(made), "md"))
    assert plain(align(again, made.conversation).view) == plain(align(made.document, made.conversation).view)
    assert align(again, made.conversation).edits == align(made.document, made.conversation).edits


def test_rows_of_later_versions_do_no_harm() -> None:
    made = talk()
    rows = [*made.rows, Row(len(made.rows) + 1, "hologram", {"id": "x"})]
    given = replace(source(made), conversation=Conversation(rows))
    assert len(json.loads(text_of(given, "json"))["messages"]) == 3


@pytest.mark.parametrize("odd", ["2026-01-01T10:00:00Z", ["x"], {"a": 1}, -5, 1e300, 10**15, True, None])
def test_a_log_that_another_program_wrote_is_exported_whatever_its_times_and_metadata_are(
    tmp_path: Path, odd: object
) -> None:
    at = {"created_at": odd, "updated_at": odd}
    thought = {"type": "reasoning", "text": "Well.", "providerMetadata": odd}
    signed = {"type": "reasoning", "text": "Hm.", "providerMetadata": {"anthropic": odd}}
    call = {"type": "tool-Bash", "toolCallId": "c", "state": "output-available", "input": {}, "output": "out"}
    parts = [
        {"type": "step-start"}, thought, signed, call | {"metadata": odd},
        call | {"toolCallId": "d", "metadata": {"duration_ms": odd}},
    ]  # fmt: skip
    facts = [
        ("message", {"id": "m", "role": "user", **at}),
        ("part", {"id": "p", "message_id": "m", "type": "text", "index": 0, "data_json": {"text": "Hi"}, **at}),
        ("message", {"id": "n", "role": "assistant"}),
        ("message", {"id": "h", "role": "user", "metadata_json": {"hidden_at": 1, "hidden_op": odd}}),
        ("message", {"id": "g", "role": "user", "metadata_json": {"hidden_at": 1, "hidden_op": "hid"}}),
        ("run", {"id": "r", "message_id": "m", "state": "finished", "error": odd}),
        *(
            ("part", {"id": f"p{n}", "message_id": "n", "type": data["type"], "index": n, "data_json": data, **at})
            for n, data in enumerate(parts)
        ),
        ("ask", {"id": "a", "decision": "once", "tool_call_id": odd, "created_at": odd, "decided_at": odd}),
    ]
    file = tmp_path / "messages.jsonl"
    file.write_text(
        "".join(json.dumps({"seq": n, "type": kind, "data": data}) + "\n" for n, (kind, data) in enumerate(facts, 1))
    )
    conversation = Conversation(read_rows(file))
    shown = rebuild(conversation)
    document = replace(shown, body=f"{shown.body}\n\nA draft.")
    source = Source(session_id="s", document=document, conversation=conversation)
    assert align(source.document, conversation).view and variants(conversation, "")
    assert all("out" in export_text(source, format).text for format in ("md", "json", "html", "acp"))
