"""What is public: exactly the names in `__all__`, each of them there, and the calls that others script against."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
import types

import pytest

import rota
import rota.sync
import rota.testing
from rota.domain.options import SubmitOptions, names_of

QUEUE = """
submit submit_many get task_id list count history artifacts open_artifact cancel cancel_many request_cancellation
replay archive mark_expired wait now create_schedule create_schedules get_schedule list_schedules count_schedules
update_schedule pause_schedule resume_schedule trigger_schedule delete_schedule restore_schedule schedule_history runs
preview why run_due enable_schedule disable_schedule close start_workflow start_workflows signal steps preview_timing
create_template get_template list_templates update_template delete_template execute_template create_tenant get_tenant
list_tenants set_limits suspend_tenant resume_tenant create_key list_keys revoke_key events nodes waiting list_queues
pause_queue resume_queue drain_queue replay_many explained_runs last_runs open_schedules overview plan apply export
forecast spread cancel_page replay_page schedule_id template_id
""".split()  # noqa: SIM905  a list of words reads better as words


@pytest.mark.parametrize("module", [rota, rota.sync, rota.testing], ids=lambda module: module.__name__)
def test_all_is_sorted_and_complete(module: types.ModuleType) -> None:
    for name in module.__all__:
        assert hasattr(module, name), f"{module.__name__}.{name} is announced but not there"
    assert len(set(module.__all__)) == len(module.__all__)


PROGRAM = """
import sys, rota, rota.domain
assert rota.__version__ and "rota.public" not in sys.modules
{first}
assert "rota.public" in sys.modules
gathered = {{name for name in vars(rota.public) if name[0].isalpha()}}
assert set(rota.__all__) == {{"__version__", *gathered}} <= set(dir(rota))
"""


@pytest.mark.parametrize(
    "first",
    ["rota.Queue", "rota.__all__", "dir(rota)", "from rota import Queue", "from rota import *; Queue"],
)
def test_rota_loads_its_public_names_when_the_first_is_asked_for(first: str) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM.format(first=first)], check=True)


def test_rota_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Qeue'"):
        rota.Qeue  # noqa: B018  it is what raises
    with pytest.raises(AttributeError, match="no attribute '_hidden'"):
        rota._hidden  # noqa: B018  it is what raises


@pytest.mark.parametrize("name", QUEUE)
def test_the_queue_has_every_promised_call(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(rota.Queue, name))


def test_submit_takes_the_promised_options() -> None:
    promised = {
        "schedule_at",
        "expires_at",
        "ttl",
        "ttl_seconds",
        "queue",
        "priority",
        "max_retries",
        "max_reschedules",
        "retry_policy",
        "timeout",
        "unique_for",
        "unique_by",
        "idempotency_key",
        "metadata",
        "tags",
    }
    assert promised <= names_of(SubmitOptions)


def test_the_context_has_the_promised_names() -> None:
    for name in (
        "task",
        "attempt",
        "progress",
        "log",
        "artifact",
        "extend_lease",
        "is_cancellation_requested",
        "is_stopping",
        "check",
    ):
        assert hasattr(rota.Context, name)


def test_modules_that_announce_names_have_them() -> None:
    for name in ("domain.model", "domain.task", "domain.schedule", "engine.commands"):
        module = importlib.import_module(f"rota.{name}")
        missing = [public for public in module.__all__ if not hasattr(module, public)]
        assert not missing, f"{name} announces {missing}"
