"""How a program stands in the record: as a call of a tool that nobody offers."""

PROGRAM = "program"
"""The name of that tool; its argument is ``program``, its result what the model reads next."""
