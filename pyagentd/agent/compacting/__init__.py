"""Keeping a conversation within its model's window (neighbours B.3): what goes, what stays, who summarises.

``tail`` decides what stays verbatim, ``pruning`` which tool outputs may go, ``summariser`` asks for a summary,
``marking`` records a compaction, ``fitting`` does it within a run and ``manual`` when the user asks for it.
"""
