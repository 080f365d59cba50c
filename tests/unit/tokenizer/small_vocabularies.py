"""Writes small vocabularies, made by hand."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ingot.gguf import GgufWriter, ValueType
from ingot.tokenizer import Tokenizer, TokenType

MakeTokenizer = Callable[..., Tokenizer]
Token = str | tuple[str, TokenType] | tuple[str, TokenType, float]


def write_vocabulary(
    path: Path, kind: str, tokens: Sequence[Token], settings: Mapping[str, object]
) -> Path:
    """Write a file that holds a vocabulary and nothing else."""
    rows = [(token, TokenType.NORMAL) if isinstance(token, str) else token for token in tokens]
    writer = GgufWriter(path)
    writer.add("general.architecture", "llama")
    writer.add("tokenizer.ggml.model", kind)
    writer.add("tokenizer.ggml.tokens", [row[0] for row in rows], ValueType.STRING)
    writer.add("tokenizer.ggml.token_type", [int(row[1]) for row in rows], ValueType.INT32)
    scores = [float(row[2]) if len(row) > 2 else 0.0 for row in rows]
    writer.add("tokenizer.ggml.scores", scores, ValueType.FLOAT32)
    for key, value in settings.items():
        if key == "name":
            writer.add("general.name", value)
        elif key == "merges":
            writer.add("tokenizer.ggml.merges", value, ValueType.STRING)
        else:
            writer.add(f"tokenizer.ggml.{key}", value)
    writer.write()
    return path


def byte_letters() -> list[str]:
    """GPT-2's letters for the bytes 0 to 255."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return [letters[byte] for byte in range(256)]


def byte_tokens() -> list[tuple[str, TokenType]]:
    """SentencePiece's tokens for the bytes 0 to 255."""
    return [(f"<0x{byte:02X}>", TokenType.BYTE) for byte in range(256)]
