"""llama.cpp's GBNF grammars, converted to llguidance's Lark."""

from ingot.sampling.grammar.gbnf.convert import to_lark

__all__ = ["to_lark"]
