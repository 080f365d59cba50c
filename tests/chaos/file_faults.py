"""Faults of files: the disk that is full, the model that changes while it is served."""

import os
import resource
from contextlib import suppress
from pathlib import Path

from chaos.faults import Fault, Limited
from chaos.load import Kind

_CHUNK = bytes(1 << 16)


class FullDisk(Fault):
    """The folder of saved slots has no space: saves fail, old files stay, texts continue."""

    excused = frozenset({Kind.UNSAVED})

    def why_not(self) -> str | None:
        """It needs a disk that may be filled."""
        return None if self.served.disk_is_mounted else "a tmpfs cannot be mounted here"

    def apply(self) -> None:
        """Fill it."""
        with suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while True:
                file.write(_CHUNK)
        self.demand_saves()

    def heal(self) -> None:
        """Give the space back."""
        self._ballast.unlink()

    @property
    def _ballast(self) -> Path:
        return self.served.slots / "ballast"


class SmallFiles(Limited):
    """RLIMIT_FSIZE at 4 KiB: saves fail in the middle of a write; the log cannot grow either."""

    which = resource.RLIMIT_FSIZE
    excused = frozenset({Kind.UNSAVED})

    def lowest(self) -> int:
        """Less than a saved slot."""
        return 4096

    def apply(self) -> None:
        """Lower it, and save."""
        super().apply()
        self.demand_saves()


class _ChangedModel(Fault):
    """The model's file is not the one that was opened; requests end with an error that says so."""

    excused = frozenset({Kind.REFUSED, Kind.ENDED})

    def heal(self) -> None:
        """Put the right file in its place, at once."""
        whole = self.served.model.with_suffix(".new")
        whole.write_bytes(self.served.model_bytes)
        whole.rename(self.served.model)
        if not self.served.eventually(self._answers):
            self.violations.append("no text came after the model's file was put right")

    def _answers(self) -> bool:
        status, _ = self.served.ask("POST", "/completion", {"prompt": "a", "n_predict": 2})
        return bool(status == 200)

    def expect_honesty(self) -> None:
        """Requests fail, so /health has to say why."""
        if not self.served.eventually(lambda: not self.served.is_healthy()):
            self.violations.append("/health is well although the model's file was spoilt")


class TruncatedModel(_ChangedModel):
    """The model's file loses its second half while it is mapped."""

    def apply(self) -> None:
        """Cut it."""
        os.truncate(self.served.model, len(self.served.model_bytes) // 2)
        self.expect_honesty()


class OverwrittenModel(_ChangedModel):
    """The model's file is overwritten in place, header and weights, while it is mapped."""

    def apply(self) -> None:
        """Overwrite it."""
        with self.served.model.open("r+b") as file:
            file.write(self.dice.randbytes(len(self.served.model_bytes)))
        self.expect_honesty()


class ReplacedModel(_ChangedModel):
    """The model's file is replaced at once by another of the same weights, as it should be done."""

    excused = frozenset()

    def apply(self) -> None:
        """Replace it."""
        super().heal()
