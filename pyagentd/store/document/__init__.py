"""The session document: its text and roles, the rendering of runs, and the matching with the log."""
