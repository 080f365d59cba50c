"""ByTokens: a policy of Serve's autoscaler that also counts the tokens in flight."""

import math
from typing import Any

from ray.serve.autoscaling_policy import replica_queue_length_autoscaling_policy
from ray.serve.config import AutoscalingContext


class ByTokens:
    """As many replicas as the requests need by Serve's own policy, or more if their tokens do."""

    def __init__(self, tokens: float) -> None:
        """`tokens` that the requests of one replica may hold, on average."""
        self._tokens = tokens

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """The number of replicas, within the limits of the configuration."""
        wanted, state = replica_queue_length_autoscaling_policy(context)
        held = (context.aggregated_metrics or {}).get("tokens", {})
        needed = math.ceil(sum(held.values()) / self._tokens)
        most = context.capacity_adjusted_max_replicas
        return max(int(wanted), min(needed, most)), state
