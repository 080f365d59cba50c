"""once: a property that is computed when it is first asked for, by one thread; others wait.

`functools.cached_property` has no lock since Python 3.12: threads that ask at the same time compute
a value each. This is for what takes long or keeps memory.
"""

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 (a decorator, like functools.cached_property)
    """Decorates a method of an object that has a `__dict__`, which keeps the value."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, of: None, owner: type) -> Self: ...
    @overload
    def __get__(self, of: object, owner: type | None = None) -> T: ...
    def __get__(self, of: object | None, owner: type | None = None) -> Self | T:
        """The value; this runs only until the object's `__dict__` has it."""
        if of is None:
            return self
        kept = of.__dict__
        # One object's properties may need each other, in any order: they share a lock.
        with kept.setdefault("_once", RLock()):
            if self._name not in kept:
                kept[self._name] = self._make(of)
            value: T = kept[self._name]
        return value
