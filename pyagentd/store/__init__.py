"""Everything on disk. No other room opens the files of a session."""
