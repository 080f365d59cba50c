"""OnGpu: what of a model is on GPUs, and what it took to bring it there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ingot.backends.gpu import GpuBackend


@dataclass(frozen=True, slots=True)
class OnGpu:
    """The part of a model on a GPU."""

    device: str
    layers: int
    of_layers: int
    allocations: int  # requests for device memory
    allocated: int  # bytes
    sent: int  # bytes of weights
    seconds: float  # to upload and pack them
    decoded: tuple[str, ...] = ()  # tensor types that become half floats there
    gpus: int = 1  # that have some of the layers

    @classmethod
    def of(
        cls, programs: "Sequence[GpuBackend]", layers: int, of_layers: int, *, gpus: int = 1
    ) -> Self:
        """What there is to say of programs that have been opened."""
        return cls(
            device=", ".join(dict.fromkeys(each.device.name for each in programs)),
            layers=layers,
            of_layers=of_layers,
            allocations=sum(each.memory.allocations for each in programs),
            allocated=sum(each.memory.allocated for each in programs),
            sent=sum(each.uploader.sent for each in programs),
            seconds=sum(each.uploader.seconds for each in programs),
            decoded=tuple(sorted({kind for each in programs for kind in each.decoded})),
            gpus=gpus,
        )

    @property
    def rate(self) -> float:
        """Bytes uploaded per second."""
        return self.sent / max(self.seconds, 1e-9)

    @property
    def whole(self) -> bool:
        """Whether all layers are there."""
        return self.layers == self.of_layers

    @property
    def alone(self) -> bool:
        """Whether all layers are on one device."""
        return self.whole and self.gpus == 1

    @property
    def remark(self) -> str:
        """These numbers in a line."""
        layers = "all" if self.whole else f"{self.layers} of {self.of_layers}"
        decoded = f"; {', '.join(self.decoded)} decoded to half floats" if self.decoded else ""
        return (
            f"{layers} layers on {self.device}, {self.sent / 1e9:.2f} GB sent in "
            f"{self.seconds:.1f} s ({self.rate / 1e9:.1f} GB/s), {self.allocations} device "
            f"allocations of {self.allocated / 2**30:.1f} GiB{decoded}"
        )
