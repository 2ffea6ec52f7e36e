"""Turns that nobody began: by the clock, by other programs, by the agent itself."""
