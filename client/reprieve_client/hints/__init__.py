"""The ways in which this program is asked, by the value of `reprieve.dev/checkpoint-hint`."""

from .choice import Hint, choose

__all__ = ["Hint", "choose"]
