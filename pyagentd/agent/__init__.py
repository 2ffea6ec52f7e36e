"""Conversations in motion. ``host`` starts and ends runs; what surrounds a run has a room of its own.

``turns``: what is said, and when it is answered. ``running``: one run. ``prompting``: what a model is told first.
``branches``: an open branch, its document and who watches. ``approving``: may it. ``delegating``: sub-agents.
``context`` and ``compacting``: the model's window. ``revising``: turns taken back. ``files``: what was done to them.
``hooking``, ``triggering``, ``dialogue``: programs that watch, turns by the clock, what a run puts before a person.
"""
