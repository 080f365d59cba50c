"""Structured output: grammars that a text must follow while it is written."""

from ingot.sampling.grammar.spec import Grammar, GrammarKind

__all__ = ["Grammar", "GrammarKind"]
