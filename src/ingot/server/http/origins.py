"""Origins: which host names a server answers to, and which pages in a browser may send requests.

The headers of a request come in; an `ApiError` is raised, or nothing. It stops two attacks on
servers that a browser can reach: DNS rebinding (a page makes its own name point here), which shows
in `Host`, and a foreign page that posts a form, which shows in `Origin` and `Sec-Fetch-Site`.
Programs other than browsers send no `Origin` and pass.
"""

import ipaddress
import re
import socket

from starlette.datastructures import Headers

from ingot.server.errors import ApiError
from ingot.server.options import ServerOptions

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})  # methods that change nothing
_PORTS = {"http": "80", "https": "443"}
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(?::(\d+))?", re.ASCII)


class Origins:
    """The names and origins that a server's options allow."""

    def __init__(self, options: ServerOptions) -> None:
        self._names = _own_names(options.host) | {_plain(name) for name in options.allowed_hosts}
        # A page that came here by DNS rebinding has no key.
        self._any_name = bool(options.api_keys) or "*" in options.allowed_hosts
        self._any_origin = "*" in options.cors_origins
        self._origins = frozenset(origin.lower() for origin in options.cors_origins)

    def check(self, method: str, http_version: str, headers: Headers) -> None:
        """Refuse a request that a page must not send."""
        hosts = headers.getlist("host")
        if len(hosts) > 1 or (not hosts and http_version == "1.1"):
            raise ApiError(400, "a request needs exactly one Host header")
        host = hosts[0].lower() if hosts else ""  # HTTP/1.0, which browsers do not use
        if host:
            self._check_host(host)
        if method not in _SAFE:
            self._check_origin(host, headers)

    def _check_host(self, host: str) -> None:
        match = _HOST.fullmatch(host)
        if match is None:
            raise ApiError(400, "the Host header is not a name and port")
        name = _plain(match[1])
        if not (self._any_name or name in self._names or _cannot_be_rebound(name)):
            raise ApiError(
                403,
                f"this server does not answer to the host name {name}; to allow it, start the "
                f"server with --allowed-host {name} or with an API key",
                code="host_not_allowed",
            )

    def _check_origin(self, host: str, headers: Headers) -> None:
        """Check `Sec-Fetch-Site`, which a page cannot set, or else `Origin`."""
        origin = headers.get("origin")
        if self._any_origin or (origin is not None and origin.lower() in self._origins):
            return
        site = headers.get("sec-fetch-site")
        if site is None:
            allowed = origin is None or _is_of(origin.lower(), host)
        else:
            allowed = site in ("same-origin", "none")
        if not allowed:
            raise ApiError(
                403,
                f"pages of {origin or 'another origin'} may not send requests to this server; to "
                "allow them, start it with --cors-origin and their origin",
                code="origin_not_allowed",
            )


def _is_of(origin: str, host: str) -> bool:
    """Whether an origin has the name and port of `Host`; a proxy may have changed the scheme."""
    scheme, _, authority = origin.partition("://")
    port = _PORTS.get(scheme)
    return port is not None and authority.removesuffix(f":{port}") == host.removesuffix(f":{port}")


def _cannot_be_rebound(name: str) -> bool:
    """Whether a name always means this machine in browsers, or is an IP address."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _own_names(bound: str) -> set[str]:
    """The name that the server listens on, and those of this machine."""
    machine = _plain(socket.gethostname())
    short = machine.partition(".")[0]
    return {_plain(bound), machine, short, f"{short}.local"}


def _plain(name: str) -> str:
    """A name in lower case, without a dot at its end, for comparison."""
    return name.lower().removesuffix(".")
