"""Frozen types (and regular expressions) that cost next to nothing to define.

The standard library's dataclass writes and compiles six methods for every type when its module is imported: 0.7 ms each,
a third of the way to the first step. Here a type's `__init__` is compiled when the first value of it is made, the rest
is shared. Type checkers see a dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    import re

T = TypeVar("T")
_MISSING: Any = object()


class _Factory:
    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], T]) -> T:
    """A default that is made anew for every value."""
    return _Factory(default_factory)  # type: ignore[return-value]


@dataclass_transform(field_specifiers=(field,))
def dataclass(*, frozen: bool = False, slots: bool = True) -> Callable[[type[T]], type[T]]:
    """The decorator: `@dataclass(frozen=True, slots=True)`.

    Without slots a value holds only what was given, and its class the rest: for a type with many fields of which most are
    as usual in most values.
    """

    def wrap(cls: type[T]) -> type[T]:
        own = tuple(cls.__dict__.get("__annotations__", ()))  # noqa: RUF063 - only its own, and without `inspect`
        space = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
        defaults = {name: space.pop(name) for name in own if name in space}
        for base in cls.__mro__[1:]:
            defaults = {**getattr(base, "__defaults__", {}), **defaults}
        inherited = tuple(name for name in getattr(cls, "__light__", ()) if name not in own)
        shared = {"__init__": _init, "__eq__": _eq, "__repr__": _repr, "__hash__": _hash if frozen else None}
        if frozen:
            shared |= {"__setattr__": _frozen, "__delattr__": _frozen}
        kept: dict[str, Any] = {"__light__": (*inherited, *own), "__defaults__": defaults}
        if slots:
            kept["__slots__"] = own
        else:
            kept |= {
                "__init__": _keep,
                "__needed__": frozenset(own) - defaults.keys(),
                "__names__": frozenset(own),
                **defaults,
            }
        build: Any = type(cls)
        made = build(cls.__name__, cls.__bases__, {**shared, **space, **kept})
        made.__qualname__ = cls.__qualname__
        return made  # type: ignore[no-any-return]

    return wrap


def filled_in(kind: type[T], fields: dict[str, Any]) -> T:
    """A value without slots, made of these fields."""
    value: T = object.__new__(kind)
    value.__dict__.update(_fitting(kind, fields))
    return value


def replace(value: T, /, **changes: Any) -> T:
    """The same value with some fields changed."""
    names: tuple[str, ...] = value.__light__  # type: ignore[attr-defined]
    return type(value)(
        **{name: changes.pop(name) if name in changes else getattr(value, name) for name in names}, **changes
    )


def regex(text: str, flags: int = 0) -> re.Pattern[str]:
    """A regular expression that is compiled when it is first used, not when its module is imported."""
    return _Pattern(text, flags)  # type: ignore[return-value]


def later(name: str) -> Any:
    """A module that is imported when something of it is asked for: what only the end of a step needs comes in while its
    program is at work. For type checkers it is imported beside this, under TYPE_CHECKING."""
    return _Module(name)


@contextmanager
def late_patterns() -> Iterator[None]:
    """While a module is imported that compiles regular expressions nobody may ever use: each waits for its first use."""
    import re

    compile_ = re.compile
    re.compile = regex  # type: ignore[assignment]
    try:
        yield
    finally:
        re.compile = compile_


class _Module:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        from importlib import import_module

        found = self.__dict__[name] = getattr(import_module(self._name), name)
        return found


class _Pattern:
    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags
        self._made: re.Pattern[str] | None = None

    def __getattr__(self, name: str) -> Any:
        import re

        if self._made is None:
            self._made = re.compile(self._text, self._flags)
        found = self.__dict__[name] = getattr(self._made, name)
        return found


def names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a type, () if it is not one of ours."""
    return getattr(kind, "__light__", ())


def _init(self: Any, *args: Any, **given: Any) -> None:
    """Fills the first few values of a type; for one that is used more, the real thing is compiled and takes its place."""
    cls = next(base for base in type(self).__mro__ if base.__dict__.get("__init__") is _init)
    _uses[cls] = used = _uses.get(cls, 0) + 1
    if used <= _FEW and _fill(self, cls, args, given):
        return
    compiled = _compile(cls)
    cls.__init__ = compiled  # type: ignore[misc]
    compiled(self, *args, **given)


def _keep(self: Any, *args: Any, **given: Any) -> None:
    """A value without slots; no default is made anew for it."""
    if args:
        given.update(zip(self.__light__, args, strict=False))
    self.__dict__.update(_fitting(type(self), given))


def _fitting(cls: Any, given: dict[str, Any]) -> dict[str, Any]:
    if not cls.__names__.issuperset(given) or cls.__needed__.difference(given):
        odd = sorted(given.keys() - cls.__names__ or cls.__needed__ - given.keys())
        raise TypeError(f"{cls.__qualname__}: unknown or missing: {', '.join(odd)}")
    return given


_FEW = 12
_uses: dict[type, int] = {}


def _fill(self: Any, cls: Any, args: tuple[Any, ...], given: dict[str, Any]) -> bool:
    """False: these are not the right arguments (the compiled one says so in Python's own words)."""
    names: tuple[str, ...] = cls.__light__
    values = dict(zip(names, args, strict=False))
    if len(values) < len(args) or not given.keys().isdisjoint(values) or not given.keys() <= set(names):
        return False
    values.update(given)
    for name in names:
        value = values[name] if name in values else cls.__defaults__.get(name, _MISSING)
        if value is _MISSING:
            return False
        object.__setattr__(self, name, value.make() if value.__class__ is _Factory else value)
    return True


def _compile(cls: type[Any]) -> Callable[..., None]:
    defaults: dict[str, Any] = cls.__defaults__
    scope: dict[str, Any] = {"_put": object.__setattr__, "_missing": _MISSING}
    head, body = ["self"], []
    for name in cls.__light__:
        value = defaults.get(name, _MISSING)
        if value is _MISSING:
            head.append(name)
        elif isinstance(value, _Factory):
            scope[f"_make_{name}"] = value.make
            head.append(f"{name}=_missing")
            body.append(f"    if {name} is _missing: {name} = _make_{name}()")
        else:
            scope[f"_default_{name}"] = value
            head.append(f"{name}=_default_{name}")
        body.append(f"    _put(self, {name!r}, {name})")
    exec(f"def __init__({', '.join(head)}):\n" + ("\n".join(body) or "    pass"), scope)
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__light__])


def _eq(self: Any, other: Any) -> Any:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    inner = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__light__)
    return f"{type(self).__qualname__}({inner})"


def _frozen(self: Any, name: str, *_: Any) -> None:
    raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be changed")
