"""May it? Presets, patterns and the one decision; pure, and never touches the disk."""
