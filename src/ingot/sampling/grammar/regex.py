"""Regular expressions as llguidance's Lark writes them."""


def to_lark(pattern: str) -> str:
    """What stands between the slashes; digits are 0 to 9, as not in every language."""
    from llguidance import regex_to_lark  # noqa: PLC0415 (0.1 s)

    return str(regex_to_lark(pattern, use_ascii="d"))
