"""What a user sees of each scenario of specification 000 that names something of gptel.

The port has no gptel underneath: where the specification says which of gptel's functions is called, what counts is
what that call is for. Each row says what that is, and the scenario's tests show it.
"""

from __future__ import annotations

from typing import NamedTuple


class Effect(NamedTuple):
    """The ``names`` of gptel in a scenario, and the ``effect`` that its tests show."""

    scenario: str
    names: tuple[str, ...]
    effect: str


EFFECTS = [
    Effect(
        "Tools captured from agent buffer context",
        ("gptel-request", "gptel-tools"),
        "The model of an agent is offered the tools of the agent's preset, not those of its parent.",
    ),
    Effect(
        "Tools captured in agent buffer context",
        ("gptel-tools",),
        "Tools that the parent gets while the agent runs are not offered to the agent.",
    ),
    Effect(
        "gptel-with-preset isolation",
        ("gptel-with-preset",),
        "What the user overrides in the parent holds for the parent before and after, and never for the agent.",
    ),
    Effect(
        "gptel-with-preset creates clean scope",
        ("gptel-request", "gptel-with-preset"),
        "Two agents that run at once each use the model, the temperature and the tools of their own presets.",
    ),
    Effect(
        "Prompt inserted to buffer before request",
        ("gptel-request",),
        "When the model is asked, session.md on disk begins with the prompt.",
    ),
    Effect(
        "Prompt inserted to buffer, request reads from buffer",
        ("gptel-request",),
        "The first message the model sees is the prompt that the document begins with.",
    ),
    Effect(
        "gptel-request initiated with context",
        ("gptel-request",),
        "The answer is put at the end of the agent's document, and the parent is told which agent moves.",
    ),
    Effect(
        "gptel-request executes async",
        ("gptel-request",),
        "Other sessions converse while an agent works, and the Lisp call returns before its result is there.",
    ),
    Effect(
        "FSM handlers chained with core handlers",
        ("gptel--handle-wait", "gptel--handle-tool-use"),
        "For each state the overlay is changed first and kept at the run's marker second.",
    ),
    Effect(
        "Custom FSM handlers registered",
        ("gptel-make-fsm", "gptel--handle-wait", "gptel--handle-tool-use"),
        "The table of handlers, in gptel's states, is what the overlay dispatches on.",
    ),
    Effect(
        "Auto-save triggers after each response",
        ("gptel-post-response-functions",),
        "session.md on disk has an answer while the agent goes on; in Emacs the buffer is saved after a pause.",
    ),
    Effect(
        "Auto-save triggers on response",
        ("gptel-post-response-functions",),
        "session.md and the log on disk have the first answer while the model works at the second.",
    ),
    Effect(
        "Auto-save hook registered at creation",
        ("gptel-post-response-functions",),
        "The hook of an agent's buffer has the save function, and only there.",
    ),
    Effect(
        "Every API response triggers buffer save",
        ("gptel-post-response-functions",),
        "A tool call and its result are in session.md on disk while the agent goes on.",
    ),
    Effect(
        "gptel-post-response-functions hook used",
        ("gptel-post-response-functions",),
        "The hook runs when an answer is complete, and a buffer that was modified is saved then.",
    ),
    Effect(
        "Conversation history fully preserved",
        ("gptel-include-tool-results",),
        "session.md has the prompt, every call with its result, and every answer.",
    ),
    Effect(
        "gptel-include-tool-results preserves tools",
        ("gptel-include-tool-results",),
        "An agent that is prompted again after a restart sends its calls and their results to the model.",
    ),
    Effect(
        "Session resumable via find-file",
        ("gptel-mode",),
        "Visiting an agent's session.md turns on pyagentd-mode, and a prompt sent there continues it.",
    ),
    Effect(
        "Network/API error cleanup",
        ("gptel-request",),
        "A parent is told `Error: Network failure` and what the server said, and no overlay is left.",
    ),
    Effect(
        "Tool registered via gptel-make-tool",
        ("gptel-make-tool",),
        "The model is offered PersistentAgent with its five arguments and the presets there are.",
    ),
]
