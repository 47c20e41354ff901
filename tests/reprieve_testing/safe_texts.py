"""What makes a text safe to show to people: one line that is displayed as it is."""

import unicodedata

_CONTROLS = {"Cc", "Cs", "Zl", "Zp"}
_TURNS_TEXT_AROUND = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def is_showable(text: str) -> bool:
    """True if `text` is one line that neither moves the cursor nor changes the text direction."""
    return len(text.splitlines()) <= 1 and not any(
        unicodedata.category(character) in _CONTROLS
        or unicodedata.bidirectional(character) in _TURNS_TEXT_AROUND
        for character in text
    )
