"""``state.db``: tables derived from the sessions (lists, search), and tables that exist only there."""
