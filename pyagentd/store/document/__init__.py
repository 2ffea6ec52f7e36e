"""The session document: its text and roles, what a run looks like in it, and how it is matched with the record."""
