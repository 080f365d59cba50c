"""Options of commands that run on Ray: the cluster, and the replicas there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from ingot.errors import ConfigError
from ingot.machine import default_threads

if TYPE_CHECKING:
    from ingot.ray.scale import Scale
    from ingot.server.batches.offline import Asking
    from ingot.server.options import ServerOptions


def _option(*names: str, text: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Ray", **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayFlags:
    """Where and how a command runs on Ray."""

    ray: Annotated[
        bool,
        _option(
            "--ray",
            text="Run on a Ray cluster: that of this machine, or a new one. Needs ingot-llm[ray].",
        ),
    ] = False
    ray_address: Annotated[
        str | None,
        _option(
            "--ray-address",
            metavar="HOST:PORT",
            text="Run on this Ray cluster. Also: RAY_ADDRESS with --ray.",
        ),
    ] = None
    replicas: Annotated[
        int, _option("--replicas", min=1, text="Replicas on Ray; with --max-replicas, at least.")
    ] = 1
    max_replicas: Annotated[
        int | None,
        _option(
            "--max-replicas", min=1, text="Replicas that Ray may start under load. [--replicas]"
        ),
    ] = None
    target_requests: Annotated[
        float | None,
        _option(
            "--target-requests",
            text="Requests per replica above which Ray adds one. [as many as it has slots]",
        ),
    ] = None
    target_tokens: Annotated[
        float | None,
        _option(
            "--target-tokens",
            text="Tokens of running requests per replica above which Ray adds one. [no limit]",
        ),
    ] = None
    replica_cpus: Annotated[
        float | None,
        _option(
            "--replica-cpus",
            text="Cores that Ray reserves for a replica. [physical cores here by --replicas]",
        ),
    ] = None
    replica_gpus: Annotated[
        float, _option("--replica-gpus", text="GPUs of a replica: 0, or 1 to run on it.")
    ] = 0
    fronts: Annotated[
        int,
        _option("--fronts", min=1, text="Processes that pass requests on to the replicas."),
    ] = 1
    pin: Annotated[
        bool, _option("--pin", text="Keep each replica to cores of its own, of one NUMA node.")
    ] = False

    def at(self, address: str | None) -> Self:
        """The same with the address that follows `--ray`."""
        if address is None:
            return self
        if not self.ray:
            raise ConfigError(
                f"unexpected argument {address!r}: a model is given with -m MODEL, the address of "
                "a Ray cluster with --ray ADDRESS"
            )
        if self.ray_address is not None:
            raise ConfigError("the address of the Ray cluster is given twice")
        return replace(self, ray_address=address)

    @property
    def wanted(self) -> bool:
        """Whether the command runs on Ray; if not, its other options are errors."""
        if self.ray or self.ray_address is not None:
            return True
        for field in fields(self):
            if getattr(self, field.name) != field.default:
                raise ConfigError(f"--{field.name.replace('_', '-')} needs --ray")
        return False

    def serve(
        self,
        options: "ServerOptions",
        given: Sequence[str],
        device: str | None,
        report: Callable[[str], None],
    ) -> None:
        """Serve on Ray.

        `given` are the models of the command line, which name what to download, and `device` the
        one that it names.
        """
        scale, sources = self._plan(options, given, device)
        from ingot.ray.process import serve_on_ray  # noqa: PLC0415

        serve_on_ray(options, scale, sources, self.ray_address, report)

    def workers(
        self, options: "ServerOptions", given: Sequence[str], device: str | None
    ) -> "Asking":
        """Workers on Ray that answer batches."""
        scale, sources = self._plan(options, given, device)
        from ingot.ray.pool import asking_workers  # noqa: PLC0415

        return asking_workers(options, scale, sources, self.ray_address)

    def _plan(
        self, options: "ServerOptions", given: Sequence[str], device: str | None
    ) -> "tuple[Scale, dict[str, str]]":
        """The replicas, and where their models come from; an error if Ray is not installed."""
        from ingot.ray import require_ray  # noqa: PLC0415 (an extra)

        require_ray()
        from ingot.ray.models import sources_of  # noqa: PLC0415
        from ingot.ray.scale import Scale, check_device  # noqa: PLC0415

        scale = Scale(
            replicas=self.replicas,
            max_replicas=self.max_replicas,
            target_requests=self.target_requests,
            target_tokens=self.target_tokens,
            cpus=self.replica_cpus or max(1, default_threads() // self.replicas),
            gpus=self.replica_gpus,
            pin=self.pin,
            fronts=self.fronts,
        )
        check_device(device, scale)
        return scale, sources_of(options.models, given)
