"""Keeps a command inside the scope of its agent: what it sees of the disk, and whom it can talk to.

``bubblewrap`` first, Landlock where that is missing, else nothing, and then it is said.
"""
