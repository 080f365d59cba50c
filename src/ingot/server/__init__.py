"""The HTTP server: OpenAI's, Anthropic's and llama-server's endpoints over one engine, and a page.

`ingot serve` runs it; `create_app` makes it for another ASGI server.
"""

from ingot.server.app import create_app
from ingot.server.limits import ConnectionLimits
from ingot.server.options import ServedModel, ServerOptions

__all__ = ["ConnectionLimits", "ServedModel", "ServerOptions", "create_app"]
