"""A victim's life: the mark, the stored state, the table of transitions, and the end."""
