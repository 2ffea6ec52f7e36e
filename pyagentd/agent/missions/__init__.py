"""Missions as runs of a session: a typed contract answered by programs instead of chat (SPEC 004).

A preset whose front matter has ``signature:`` is a contract (``contract``). A run of such a branch is a mission
(``missionrun``): the loop of the room ``mission`` with callbacks of ours. Its model is the run's backend, so retry,
``requests.jsonl``, usage and cost are those of any run; its tools are the run's tools (``programtools``), called
through the same ``Calling`` and so through the same decision, questions, audit, hooks and snapshots.

What happens is rows, as of any run, so that replay equals live and the document reads as a conversation: what the
model says around a program is text, the program is a call of the tool ``program``, what the model reads next is that
call's result, and the calls that the program makes follow it. Rows of type ``mission`` (``records``) say what was
asked, where the loop stands after every turn (memory, context, turns, budget: a ``State``), and how it ended; a
mission that was cut off goes on from the last of them.

Missions nest: through the tool ``mission`` (``missiontool``) and through agents that run as missions. The nearest
mission above (``kindred``) shares its budget of turns, and its depth counts, however many chats are between.
"""
