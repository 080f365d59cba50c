"""recommended_options: the options of an engine, with what the publisher of its model sets.

Options and the path of a model come in. A model of ollama may set the context, and may have LoRA
adapters, which are a part of it: requests use them unless they choose others. What the caller sets
takes precedence.
"""

from dataclasses import replace
from pathlib import Path

from ingot.engine.options import EngineOptions
from ingot.recommended import recommended_adapters, recommended_context


def recommended_options(path: Path, options: EngineOptions) -> EngineOptions:
    """The options for the model of a path."""
    if options.context is None and (context := recommended_context(path)) is not None:
        options = replace(options, context=context)
    given = options.adapters or {}
    own = {name: file for name, file in recommended_adapters(path).items() if name not in given}
    if not own:
        return options
    scales = {**dict.fromkeys(own, 1.0), **(options.adapter_scales or {})}
    return replace(options, adapters={**own, **given}, adapter_scales=scales)
