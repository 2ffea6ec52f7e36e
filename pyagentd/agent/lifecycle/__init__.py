"""The life of a named agent: made, configured, talked with, put to rest, destroyed (SPEC 003)."""
