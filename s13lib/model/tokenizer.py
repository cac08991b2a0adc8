"""A character-level tokenizer: one token a character."""

from __future__ import annotations

from collections.abc import Sequence

from s13lib.errors import InputError


class CharTokenizer:
    """Token i is the i-th character of ``characters``."""

    def __init__(self, characters: str | Sequence[str]) -> None:
        self.characters = tuple(characters)
        self._ids = {c: i for i, c in enumerate(self.characters)}

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``; a character outside the vocabulary is an ``InputError`` that names it."""
        for c in text:
            if c not in self._ids:
                known = "".join(self.characters).replace("\n", "")
                raise InputError(f"the character {c!r} is not in the model's vocabulary; it knows {known}")
        return [self._ids[c] for c in text]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of ``tokens``."""
        return "".join(self.characters[t] for t in tokens)
