"""Shell completion: how a shell asks for it, and the names of models."""

PROGRAM = "ingot"
COMPLETE_VARIABLE = "_INGOT_COMPLETE"


def complete_model(incomplete: str) -> list[str]:
    """The names of `ingot list` that begin like this. Files are completed by the shell itself."""
    from ingot import convert  # noqa: PLC0415 (only when a shell asks)

    names = ["default", *(model.name for model in convert.list_models())]
    return [name for name in names if name.startswith(incomplete)]
