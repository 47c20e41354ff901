"""What a text must be to be shown to people: one line, as it stands."""

import unicodedata

_CONTROLS = {"Cc", "Cs", "Zl", "Zp"}
_TURNS_TEXT_AROUND = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def is_showable(text: str) -> bool:
    """True where `text` is one line that moves no cursor and turns no text around."""
    return len(text.splitlines()) <= 1 and not any(
        unicodedata.category(character) in _CONTROLS
        or unicodedata.bidirectional(character) in _TURNS_TEXT_AROUND
        for character in text
    )
