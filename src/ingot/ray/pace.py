"""How often a stream sends through Ray.

In: how many streams a replica has. Out: seconds. A message between the processes of Serve costs
the same however much it holds, so tokens wait for those that follow them. Knows nothing of Ray.
"""

AT_ONCE = 2  # messages before the first pause: the start of the response, the first token
START = 0.002  # seconds in which what follows the headers at once joins them

# For each stream of the replica, and the limits. A message costs the proxy and the front 0.6 ms of
# a core (Zen 4, gRPC): 100 of them a second cost 6% of one. A reader can follow ten a second.
_PER_STREAM, _SHORTEST, _LONGEST = 0.01, 0.04, 0.1


def pause(streams: float) -> float:
    """Seconds between two messages of a stream."""
    return min(max(_PER_STREAM * streams, _SHORTEST), _LONGEST)
