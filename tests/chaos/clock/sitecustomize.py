"""A wall clock that can be set from outside, for the server under test alone.

Python imports this module by its name at the start. `time.time` and `datetime.now` add the
offset that the file `INGOT_CHAOS_CLOCK` holds as a double; the monotonic clocks stay as they are,
as they do when a real clock is set. Clocks read by native code are not covered.
"""

import datetime
import mmap
import os
import struct
import time
from pathlib import Path

with Path(os.environ["INGOT_CHAOS_CLOCK"]).open("rb") as file:
    _offset = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
_real = time.time


def _time() -> float:
    return _real() + struct.unpack("<d", _offset)[0]


class _Datetime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return cls.fromtimestamp(_time(), tz)


time.time = _time
datetime.datetime = _Datetime
