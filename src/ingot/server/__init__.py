"""The HTTP server: the APIs of OpenAI, Anthropic, Ollama and llama-server, and a web page.

`ingot serve` runs it; `create_app` is for other ASGI servers.
"""

from ingot.server.app import create_app
from ingot.server.http.connection_limits import ConnectionLimits
from ingot.server.options import ServedModel, ServerOptions

__all__ = ["ConnectionLimits", "ServedModel", "ServerOptions", "create_app"]
