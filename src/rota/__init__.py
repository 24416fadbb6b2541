"""Rota: a durable scheduler and task queue for Python, on the store you already have.

import rota

app = rota.App()

@app.task
async def greet(name: str) -> str: ...

async with app.connect() as queue:               # the file rota.db
    await greet.submit("Ada")                    # or queue.submit("greet", {"name": "Ada"})
    await rota.Worker(queue, app).run()

Begin with `public`, which gathers the names of `rota`. `sync` has the calls without `await`. `testing` is virtual time,
`scenario` plays an app in it, and `pytest_plugin` gives both to pytest. `contrib` is for other frameworks. Programs
import these; of the layers (`surfaces`, `engine`, `stores`, `domain`) only what the documentation names.
"""

# ruff: noqa: F403  the names are those of public.py, loaded at first use

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .public import *

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load every public name, and `__all__`, when the first of them is asked for."""
    if name == "__all__" or not name.startswith("_"):
        public = import_module(f"{__name__}.public")
        names = {each: value for each, value in vars(public).items() if each[0].isalpha()}
        globals().update(names, __all__=[*names, "__version__"])
    if name not in globals():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
