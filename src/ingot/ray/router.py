"""PrefixRouter: Ray Serve's interface to `Balance`. It runs where a handle to the replicas is."""

from typing import Any

from ray.serve.request_router import (
    FIFOMixin,
    PendingRequest,
    ReplicaID,
    RequestRouter,
    RunningReplica,
)

from ingot.ray.balance import Balance
from ingot.ray.call import Call, Route
from ingot.ray.home import Home

# What a replica tells about itself when it has started: the time, in seconds, and whether it
# claimed the folder of batches.
STARTED, OWNS = "started", "owns_batches"


class PrefixRouter(FIFOMixin, RequestRouter):  # type: ignore[misc]
    """Sends a call to the replica that its route wants."""

    def initialize_state(self, **_: Any) -> None:
        """Begin without knowledge; Serve calls it once."""
        self._balance = Balance()
        self._home = Home()

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Replicas were added or removed."""
        self._balance.keep({_name(each.replica_id) for each in replicas})
        super().update_replicas(replicas)

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The replicas for a request, each a rank for itself."""
        named = {_name(each.replica_id): each for each in candidate_replicas}
        call = None if pending_request is None else _call(pending_request)
        if named and call is not None and call.route is Route.HOME:
            told = {name: each.replica_metadata for name, each in named.items()}
            started = {name: each[STARTED] for name, each in told.items()}
            owners = [name for name, each in told.items() if each[OWNS]]
            return [[named[self._home.of(started, owners)]]]
        running = {
            name: self.replica_queue_len_cache.get(each.replica_id) or 0
            for name, each in named.items()
        }
        keys = () if call is None else call.keys
        return [[named[name]] for name in self._balance.rank(keys, running)]

    def on_request_routed(
        self,
        pending_request: PendingRequest,
        replica_id: ReplicaID,
        result: Any,  # noqa: ARG002
    ) -> None:
        """A replica got a request."""
        call = _call(pending_request)
        if call is not None and call.route is Route.PREFIX:
            self._balance.took(_name(replica_id), call.keys)


def _call(pending: PendingRequest) -> Call | None:
    return next((each for each in pending.args if isinstance(each, Call)), None)


def _name(replica: ReplicaID) -> str:
    return str(replica.unique_id)
