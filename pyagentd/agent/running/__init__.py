"""One execution of the loop: what it needs, its steps, its calls, its limits, and going on after a restart."""
