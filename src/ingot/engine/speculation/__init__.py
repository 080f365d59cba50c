"""Speculative decoding: guesses of the next tokens, which one step then verifies together.

The text never changes: every token is sampled from its own logits, and a guess only decides how
many rows of logits one step computes. A proposer says what the next tokens may be, and a guesser of
each text how many of them are worth a try.
"""

from ingot.engine.speculation.auto import AutoSpeculation
from ingot.engine.speculation.engine_guesses import EngineGuesses, open_eagle
from ingot.engine.speculation.guesser import Guesser

__all__ = ["AutoSpeculation", "EngineGuesses", "Guesser", "open_eagle"]
