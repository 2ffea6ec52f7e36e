"""Servers of the Model Context Protocol in sessions: which hold for a run, and what comes of them there."""
