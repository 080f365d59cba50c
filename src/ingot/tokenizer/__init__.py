"""Tokenizers (text to token ids and back) and chat templates."""

from ingot.tokenizer.build import TokenType
from ingot.tokenizer.stream import StreamDecoder
from ingot.tokenizer.tokenizer import Tokenizer

__all__ = ["StreamDecoder", "TokenType", "Tokenizer"]
