"""Keeps a command inside the scope of its agent: what it sees of the disk, and whom it can talk to."""
