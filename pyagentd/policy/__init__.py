"""Decides what an agent may do: presets, patterns, profiles, grants. Pure: it never touches the disk."""
