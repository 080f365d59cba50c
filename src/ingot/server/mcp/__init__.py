"""Tools of MCP servers: this server as a client of the Model Context Protocol. Off by default.

`--mcp-config` names the servers. Clients list their tools and call them one by one, or have the
server call them while it answers a request.
"""
