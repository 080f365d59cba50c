"""EngineAdapters: the LoRA adapters of an engine, by name, and the slots of the model they are in.

Adapters come and go while requests run. A request holds what it uses (`AdapterUse`): the slot of an
adapter that was removed is freed when nobody holds it any more. Several adapters of one request
become a single one, which lives as long as it is used. Any thread may call.

Putting an adapter into a slot waits for a step, and making the model ready for its rank may take
seconds. Whoever asks for names, or for an adapter that is in a slot, does not wait for that: the
table of names is replaced as a whole, and read without a lock.
"""

import math
import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock

from ingot.adapters import Adapter, combined
from ingot.errors import AdapterError, SamplingError

AdapterChoice = str | Mapping[str, float]
AdapterKey = tuple[tuple[int, float], ...]
MAX_ADAPTERS = 1024


class _Held:
    """An adapter in a slot."""

    def __init__(self, number: int, slot: int, adapter: Adapter) -> None:
        self.number = number  # never used again for another one
        self.slot = slot
        self.adapter = adapter


@dataclass(frozen=True, slots=True)
class AdapterUse:
    """What a sequence uses: a slot of the model, and how much of the adapter is added."""

    held: _Held
    scale: float
    key: AdapterKey  # keys and values of sequences with the same key are the same

    @property
    def slot(self) -> int:
        """The adapter's slot."""
        return self.held.slot

    @property
    def without_weights(self) -> "AdapterUse":
        """The same for another process, which has the adapter in the slot already."""
        held = _Held(self.held.number, self.held.slot, Adapter(self.held.adapter.path, {}))
        return AdapterUse(held, self.scale, self.key)


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """An adapter that requests may name."""

    name: str
    path: str
    scale: float  # that requests use if they do not say
    task: str
    prompt_prefix: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Named:
    """An adapter that requests may name, and the scale for those that do not say."""

    held: _Held
    scale: float


class EngineAdapters:
    """The adapters that requests may name."""

    def __init__(
        self,
        read: Callable[[str | os.PathLike[str]], Adapter],
        prepare: Callable[[int], None],
        attach: Callable[[int, Adapter | None], None],
    ) -> None:
        """`read` opens one. `prepare` makes the model ready for its rank, which may take long.

        `attach` puts one into a slot of the model, or frees the slot.
        """
        self._read = read
        self._prepare = prepare
        self._attach = attach
        self._named: Mapping[str, _Named] = {}
        self._lock = Lock()  # of the slots, and of changes to these names
        self._mixed: weakref.WeakValueDictionary[AdapterKey, _Held] = weakref.WeakValueDictionary()
        self._unused: list[int] = []  # slots whose adapter nobody holds
        self._free: list[int] = []
        self._slots = self._numbers = 0

    def __len__(self) -> int:
        return len(self._named)

    @property
    def infos(self) -> tuple[AdapterInfo, ...]:
        """All adapters, in the order in which they were added."""
        return tuple(
            AdapterInfo(
                name,
                named.held.adapter.path,
                named.scale,
                named.held.adapter.task,
                named.held.adapter.prompt_prefix,
                named.held.adapter.nbytes,
            )
            for name, named in self._named.items()
        )

    def add(self, name: str, path: str | os.PathLike[str], scale: float = 0.0) -> None:
        """Open an adapter under a name; requests that choose none use it with this scale."""
        if not isinstance(name, str) or not name:
            raise AdapterError(f"the name of an adapter is {name!r}; it must be a text")
        _check_scale(name, scale)
        self._require_new(name)
        adapter = self._read(path)
        self._prepare(adapter.rank)  # requests with other adapters need not wait
        with self._lock:
            self._require_new(name)
            self._named = {**self._named, name: _Named(self._hold(adapter), float(scale))}

    def remove(self, name: str) -> None:
        """Forget an adapter; requests that run with it continue."""
        with self._lock:
            _require_known(name, self._named)
            self._named = {key: named for key, named in self._named.items() if key != name}
            self._sweep()

    def set_scales(self, scales: Mapping[str, float]) -> None:
        """What requests use from now on if they do not say; adapters left out are not used."""
        with self._lock:
            for name, scale in scales.items():
                _require_known(name, self._named)
                _check_scale(name, scale)
            self._named = {
                name: replace(named, scale=float(scales.get(name, 0.0)))
                for name, named in self._named.items()
            }

    def use(self, choice: AdapterChoice | None) -> AdapterUse | None:
        """What a request uses that chooses one by name, or several by name and scale.

        None: the scales that are set. An empty choice is none.
        """
        named = self._named
        wanted = _wanted(choice, named)
        if not wanted:
            return None
        parts = sorted(
            ((named[name].held, scale) for name, scale in wanted.items()),
            key=lambda part: part[0].number,
        )
        key = tuple((held.number, scale) for held, scale in parts)
        if len(parts) == 1:
            return AdapterUse(parts[0][0], parts[0][1], key)
        mixed = self._mixed.get(key)
        if mixed is None:
            adapter = combined([(held.adapter, scale) for held, scale in parts])
            self._prepare(adapter.rank)
            with self._lock:
                mixed = self._mixed.get(key)  # another thread may have made it meanwhile
                if mixed is None:
                    self._mixed[key] = mixed = self._hold(adapter)
        return AdapterUse(mixed, 1.0, key)

    def places(self, use: AdapterUse | None) -> dict[int, float]:
        """The scales of what a sequence uses, by places in `infos`; removed ones are left out."""
        scales = dict(use.key if use else ())
        return {
            place: scales[named.held.number]
            for place, named in enumerate(self._named.values())
            if named.held.number in scales
        }

    def require_none(self) -> None:
        """Refuse what is computed without adapters, if requests use some without asking."""
        if any(named.scale for named in self._named.values()):
            raise AdapterError(
                "hidden states, embeddings and scores are computed without adapters: set "
                "adapter_scales to none, or merge the adapter into the model (`ingot merge-lora`)"
            )

    def _require_new(self, name: str) -> None:
        if name in self._named:
            raise AdapterError(f"there is an adapter {name!r} already; remove it first")

    def _hold(self, adapter: Adapter) -> _Held:
        """Put an adapter into a slot, which is free again when nobody holds it."""
        self._sweep()
        if not self._free and self._slots >= MAX_ADAPTERS:
            raise AdapterError(f"{MAX_ADAPTERS} adapters are in use, which is the limit")
        slot = self._free.pop() if self._free else self._slots
        self._slots = max(self._slots, slot + 1)
        try:
            self._attach(slot, adapter)
        except BaseException:
            self._unused.append(slot)
            raise
        self._numbers += 1
        held = _Held(self._numbers, slot, adapter)
        weakref.finalize(held, self._unused.append, slot).atexit = False
        return held

    def _sweep(self) -> None:
        """Free the slots of adapters that nobody holds."""
        while self._unused:
            slot = self._unused.pop()
            self._attach(slot, None)
            self._free.append(slot)


def _wanted(choice: AdapterChoice | None, named: Mapping[str, _Named]) -> dict[str, float]:
    """The adapters of a choice, with their scales."""
    if choice is None:
        return {name: each.scale for name, each in named.items() if each.scale}
    if isinstance(choice, str):
        _require_known(choice, named)
        return {choice: 1.0}
    if not isinstance(choice, Mapping):
        raise SamplingError("adapter", choice, "a name, or names with their scales")
    for name, scale in choice.items():
        _require_known(name, named)
        _check_scale(name, scale)
    return {name: float(scale) for name, scale in choice.items() if scale}


def _require_known(name: str, named: Mapping[str, _Named]) -> None:
    """Raise an error if there is no adapter with this name."""
    if not isinstance(name, str) or name not in named:
        known = ", ".join(map(repr, named)) or "none"
        raise AdapterError(f"there is no adapter {name!r}; those that are loaded: {known}")


def _check_scale(name: str, scale: object) -> None:
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not math.isfinite(scale):
        raise SamplingError(f"the scale of adapter {name!r}", scale, "a finite number")
