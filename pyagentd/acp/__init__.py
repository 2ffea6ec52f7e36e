"""The Agent Client Protocol on stdio: other editors use the same sessions. A client of the daemon, as ``cli`` is.

The daemon owns the turns and their record: what an editor is told is folded from the rows of the log, an ask is
answered where somebody answers it first, and an editor that goes away leaves its runs going.
"""
