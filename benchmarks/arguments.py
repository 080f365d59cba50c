"""Values of command lines that several benchmarks take."""

import argparse


def numbers(text: str, least: int = 1) -> tuple[int, ...]:
    """A type of `argparse`: numbers with commas between; an empty text is none."""
    try:
        found = tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        found = (least - 1,)
    if any(number < least for number in found):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not numbers from {least} with commas between"
        )
    return found
