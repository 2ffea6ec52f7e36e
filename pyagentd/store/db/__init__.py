"""``state.db``: what is derived from the sessions for search and lists, and what is owned there."""
