"""The Agent Client Protocol on stdio, so that other editors use the same sessions; a client as ``cli`` is one.

The daemon owns the turns and their record: what an editor is told is folded from the rows of the log, an ask is
answered where somebody answers it first, and an editor that goes away leaves its runs going.
"""
