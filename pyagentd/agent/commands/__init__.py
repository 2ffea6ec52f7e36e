"""Slash commands: what is typed at a prompt and answered by the daemon, never by the model (SPEC 003, DD-18)."""
