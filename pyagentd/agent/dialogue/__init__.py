"""What a run puts before a person: questions, options to pick from, its list of steps."""
