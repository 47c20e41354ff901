"""A victim's life: the mark, the stored state, the table of transitions, what follows from each observation."""
