"""Taking turns back in a conversation that was compacted: the boundary goes and comes with the marker."""

from __future__ import annotations

from typing import Any

import pytest

from pyagentd.features.history import History, fork_of, prompts
from pyagentd.store.document.reconcile import align
from pyagentd.store.document.text import read
from pyagentd.store.paths import BranchRef
from tests.features.test_compacting import SUMMARY, THREE, markers, next_view, roles_and_heads, sent, small, talk
from tests.runtime.world import Watcher, World, attached

__all__ = ["small"]  # a fixture


@pytest.fixture
async def compacted(small: World) -> BranchRef:
    """Four turns; the fourth was answered behind a marker that summarises all but the last two."""
    ref = small.session()
    await talk(small, ref, *THREE, ("Four", [SUMMARY, "Done"]))
    assert len(markers(ref)) == 1
    return ref


def heads(view: tuple[Any, ...]) -> list[str]:
    return [part.text[:24] for message in view for part in message.parts]


@pytest.mark.spec("002", "Can a user rewind past a compaction back to a turn the compaction summarized?")
async def test_rewinding_to_a_summarised_prompt_takes_the_boundary_away(small: World, compacted: BranchRef) -> None:
    with_summary = next_view(compacted)
    assert heads(with_summary)[0] == "<conversation_summary>\n#"
    async with small.kernel.using(compacted) as branch:
        listed = prompts(branch.conversation)
        assert [each["text"] for each in listed] == ["One", "Two", "Three", "Four"], "summarised ones too"
        history = History(small.kernel)
        await history.rewind(branch, listed[1]["message_id"])
        assert heads(next_view(compacted)) == ["One", "blah blah blah blah blah", "Two"]
        assert len(markers(compacted)) == 1, "nothing is deleted"
        await history.unrewind(branch)
        assert next_view(compacted) == with_summary
        await history.rewind(branch, listed[1]["message_id"])
    await talk(small, compacted, ("Other", ["Well"]))
    assert roles_and_heads(sent(small)[-1]) == [
        ("user", "One"), ("assistant", "blah blah blah blah blah"), ("user", "Two"),
    ]  # fmt: skip
    assert [block["text"] for block in sent(small)[-1][-1]["content"]] == ["Two", "Other"]


async def test_an_answer_given_behind_a_compaction_has_variants_too(small: World, compacted: BranchRef) -> None:
    async with small.kernel.using(compacted) as branch:
        four = prompts(branch.conversation)[3]["message_id"]
        history = History(small.kernel)
        await history.rewind(branch, four)
        assert heads(next_view(compacted))[-1] == "Four"
        await history.unrewind(branch)
        assert heads(next_view(compacted))[0] == "<conversation_summary>\n#"


async def test_a_fork_keeps_the_summary_and_where_the_tail_begins(small: World, compacted: BranchRef) -> None:
    async with small.kernel.using(compacted) as branch:
        made = await fork_of(small.kernel, branch, None)
    assert heads(next_view(made)) == heads(next_view(compacted))
    (marker,), (old,) = markers(made), markers(compacted)
    assert marker["tail_start_id"] != old["tail_start_id"] and marker["summary"] == SUMMARY
    async with small.kernel.using(made) as fork:
        assert marker["tail_start_id"] in fork.conversation.messages
        assert align(read(fork.file), fork.conversation).edits == ()


async def test_a_prompt_that_is_asked_again_and_compacted_again_goes_on_from_the_new_summary(
    small: World, compacted: BranchRef
) -> None:
    async with small.kernel.using(compacted) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        small.server.say(f"{SUMMARY} Again.", "Once more")
        await History(small.kernel).regenerate(branch, None, small.options)
        await watcher.finished(branch)
        branch.detach(watcher)
    assert len(markers(compacted)) == 2
    await talk(small, compacted, ("Five", ["Done"]))
    before, after = sent(small)[-2:]
    assert "Again." in before[0]["content"][0]["text"]
    assert after[: len(before)] == before, "the provider's cache is good for it"
