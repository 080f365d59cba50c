"""An engine in a process for itself, so that it shares no interpreter lock with its callers.

client.py has the engine as its callers see it, worker.py what runs in the other process, and
messages.py what the two say to each other: one message for all tokens of a step.
"""

from ingot.engine.process.client import EngineClient

__all__ = ["EngineClient"]
