"""Anthropic's endpoints."""

from ingot.server.anthropic.messages import router

__all__ = ["router"]
