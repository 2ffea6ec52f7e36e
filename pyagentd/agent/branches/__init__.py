"""A branch that is open: its log, its document, who edits it and who watches."""
