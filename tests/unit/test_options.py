"""One field, one place: what `domain.options` declares can be given on every surface where it belongs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import pytest
from fastapi import APIRouter, FastAPI, Request

import rota
from records import schedule
from rota.domain import recurrence
from rota.domain.model import TaskRequest
from rota.domain.options import (
    Option,
    ScheduleChanges,
    ScheduleFilters,
    ScheduleOptions,
    SubmitManyOptions,
    SubmitOptions,
    TaskFilters,
    TaskOptions,
    TemplateChanges,
    TemplateOptions,
    TimingOptions,
    UniqueOptions,
    names_of,
    options_of,
)
from rota.domain.schedule.definition import FIELDS, MOST_UPSTREAM
from rota.domain.task import Submission
from rota.surfaces.cli.commands import schedule_views as cli_schedule_views
from rota.surfaces.cli.commands import schedules as cli_schedules
from rota.surfaces.cli.commands import tail as cli_tail
from rota.surfaces.cli.commands import tasks as cli_tasks
from rota.surfaces.cli.commands import templates as cli_templates
from rota.surfaces.cli.commands import workflows as cli_workflows
from rota.surfaces.http.fields import Body, RetryPolicyBody, as_given, body_fields, body_name, camel
from rota.surfaces.http.tenants import answers, executions, timing_answers
from rota.surfaces.http.tenants import schedules as http_schedules
from rota.surfaces.http.tenants import schemas as tenants
from rota.surfaces.http.tenants.templates import StoredTemplateAnswer
from rota.surfaces.http.v1 import answers as v1_answers
from rota.surfaces.http.v1 import schemas as v1

ROOT = Path(__file__).parent.parent.parent
SHAPES = [SubmitOptions, ScheduleChanges, TemplateChanges, TaskFilters, ScheduleFilters]

CALLS = {
    "submit": SubmitOptions,
    "start_workflow": SubmitOptions,
    "start_workflows": SubmitManyOptions,
    "submit_many": SubmitManyOptions,
    "list": TaskFilters,
    "count": TaskFilters,
    "cancel_many": TaskFilters,
    "cancel_page": TaskFilters,
    "replay_many": TaskFilters,
    "replay_page": TaskFilters,
    "create_schedule": ScheduleOptions,
    "update_schedule": ScheduleChanges,
    "preview_timing": TimingOptions,
    "list_schedules": ScheduleFilters,
    "count_schedules": ScheduleFilters,
    "create_template": TemplateOptions,
    "update_template": TemplateChanges,
}

ON_PAUSE = {"status": "enabled, and a list of its own", "pause_note": "POST …/pause has it"}
TIMING = dict.fromkeys(options_of(TimingOptions).keys() - FIELDS.keys(), "scheduleType has a body of its own")
TARGET = dict.fromkeys(
    [*(options_of(TaskOptions).keys() - {"metadata"}), "task_type"], "target has a body of its own"
)
BODIES: list[tuple[type, type, dict[str, str]]] = [
    (tenants.ExecutionBody, SubmitOptions, {"schedule_at": "an execution starts now"}),
    (tenants.WorkflowBody, SubmitOptions, {"schedule_at": "an execution starts now"}),
    (tenants.TaskTargetBody, TaskOptions, {}),
    (tenants.WorkflowTargetBody, TaskOptions, {}),
    (tenants.ScheduleBody, ScheduleOptions, {**TIMING, **TARGET, "pause_note": ON_PAUSE["pause_note"]}),
    (tenants.SchedulePut, ScheduleOptions, {**TIMING, **TARGET}),
    (tenants.SchedulePatch, ScheduleOptions, {**TIMING, **TARGET, "pause_note": ON_PAUSE["pause_note"]}),
    (tenants.StoredTemplateBody, TemplateOptions, {}),
    (tenants.StoredTemplatePatch, TemplateOptions, {}),
    (v1.TemplateBody, TemplateOptions, {}),
    (v1.TemplatePut, TemplateOptions, {}),
    (v1.TemplatePatch, TemplateOptions, {}),
]
WORKFLOWS = {"workflow": "workflows have a list of their own"}
FILTER_BODIES: list[tuple[type, type, dict[str, str]]] = [
    (tenants.BulkBody, ScheduleFilters, {"deleted": "a deleted one is restored, nothing else"}),
    (tenants.ReplayBody, TaskFilters, WORKFLOWS),
]
IN_LISTS_OF_SCHEDULES = {"kind": "target", "text": "q"}
ROUTES: list[tuple[APIRouter, str, type, dict[str, str]]] = [
    (http_schedules.router, "schedules", ScheduleFilters, {}),
    (executions.router, "task-executions", TaskFilters, WORKFLOWS),
    (executions.router, "workflow-executions", TaskFilters, WORKFLOWS),
]
ELSEWHERE = {"status": "--paused and --draft", "pause_note": "rota schedule pause --note"}
COMMANDS: list[tuple[click.Command, type, dict[str, str]]] = [
    (cli_tasks.submit, SubmitOptions, {}),
    (cli_schedules.create, ScheduleOptions, ELSEWHERE),
    (cli_schedules.update, ScheduleOptions, ELSEWHERE),
    (cli_templates.create, TemplateOptions, {}),
    (cli_templates.update, TemplateOptions, {}),
    (cli_workflows.start, SubmitOptions, {}),
    (cli_tasks.list_tasks, TaskFilters, WORKFLOWS),
    (cli_tasks.cancel, TaskFilters, WORKFLOWS),
    (cli_tasks.replay, TaskFilters, WORKFLOWS),
    (cli_tail.tail, TaskFilters, WORKFLOWS),
    (cli_workflows.list_workflows, TaskFilters, WORKFLOWS),
    (cli_schedule_views.list_schedules, ScheduleFilters, {}),
]
UNIQUE = dict.fromkeys(options_of(UniqueOptions), "its receipt has it")
OF_TASK = {"ttl": "expires_at", "schedule_at": "available_at", **UNIQUE}
RECORDS: list[tuple[type[msgspec.Struct], type, dict[str, str]]] = [
    (TaskRequest, TaskOptions, {}),
    (rota.TaskTarget, TaskOptions, {}),
    (rota.WorkflowTarget, TaskOptions, {}),
    (rota.Template, TemplateOptions, {}),
    (Submission, SubmitOptions, {}),
    (rota.Task, SubmitOptions, OF_TASK),
    (rota.Schedule, ScheduleOptions, {**TIMING, **TARGET}),
]
ANSWERS: list[tuple[type[msgspec.Struct], type, dict[str, str]]] = [
    (answers.ExecutionAnswer, SubmitOptions, OF_TASK),
    (answers.ScheduleAnswer, ScheduleOptions, {**TIMING, **TARGET}),
    (StoredTemplateAnswer, TemplateOptions, {}),
    (v1_answers.TemplateAnswer, TemplateOptions, {}),
]
TABLES = {
    "submit options": SubmitOptions,
    "schedule options": ScheduleOptions,
    "template options": TemplateOptions,
    "task filters": TaskFilters,
    "schedule filters": ScheduleFilters,
}


TIMINGS: list[tuple[type[msgspec.Struct], type[Body], type[msgspec.Struct], dict[str, str]]] = [
    (recurrence.Once, tenants.Once, timing_answers.OnceAnswer, {"end_at": "one time needs no end"}),
    (recurrence.Interval, tenants.Every, timing_answers.IntervalAnswer, {"anchor": "startAt"}),
    (recurrence.Cron, tenants.Recurring, timing_answers.RecurringAnswer, {}),
    (recurrence.RRule, tenants.Rule, timing_answers.RuleAnswer, {"dtstart": "startAt"}),
    (recurrence.Several, tenants.SeveralTimings, timing_answers.SeveralAnswer, {}),
    (recurrence.After, tenants.AfterOthers, timing_answers.AfterAnswer, {}),
]
"""The bodies and answers of timings are written out: field by field, they have names and examples of their own. The
tests below compare them with the records and the options that they are about."""
NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
CHOSEN = (recurrence.DstGap.BEFORE, recurrence.DstFold.SECOND)
WHOLE_TIMINGS: list[recurrence.Timing] = [
    recurrence.Once(NOON),
    recurrence.Interval(timedelta(minutes=5), NOON),
    whole_cron := recurrence.Cron("0 9 1 * 1", "Europe/Paris", recurrence.DayMatch.AND, *CHOSEN),
    recurrence.RRule("FREQ=DAILY", NOON, "Europe/Paris", *CHOSEN),
    recurrence.Several((whole_cron,)),
    recurrence.After(("extract",), recurrence.AfterOn.END, timedelta(minutes=5)),
]
IN_TIMINGS = {"expression": "cron", "every": "every_seconds", "delay": "delay_seconds"}
LISTS = {"timings": recurrence.MOST_TIMINGS, "after": MOST_UPSTREAM}
V1_TIMINGS: list[tuple[type[Any], dict[str, str]]] = [
    (v1.OnceV1, {"run_at": "run_at"}),
    (v1.IntervalV1, {"interval": "interval_seconds"}),
    (v1.CronV1, {"cron": "cron_expression", "timezone": "timezone"}),
    (
        v1.TaskSchedulePatch,
        {
            "run_at": "run_at",
            "interval": "interval_seconds",
            "cron": "cron_expression",
            "timezone": "timezone",
        },
    ),
]


class Declared(Body):
    """What a body would be that is made from the options of timings."""

    __annotations__ = body_fields(TimingOptions, RetryPolicyBody, leave_out=tuple(LISTS))


def name_of(thing: Any) -> str:
    return getattr(thing, "__name__", None) or getattr(thing, "name", None) or ""


@pytest.mark.parametrize(("call", "shape"), CALLS.items(), ids=name_of)
def test_a_call_takes_its_shape(call: str, shape: type) -> None:
    wanted = f"Unpack[{shape.__name__}]"
    last = list(signature(getattr(rota.Queue, call)).parameters.values())[-1]
    assert last.annotation == wanted
    stub = (ROOT / "src" / "rota" / "sync.pyi").read_text()
    assert re.search(rf"def {call}\([^)]*\*\*\w+: {re.escape(wanted)}", stub)


def test_an_app_declares_schedules_with_the_same_options() -> None:
    assert signature(rota.App.schedule).parameters["options"].annotation == "Unpack[ScheduleOptions]"


@pytest.mark.parametrize(("record", "shape", "left_out"), RECORDS, ids=name_of)
def test_a_record_keeps_every_option(
    record: type[msgspec.Struct], shape: type, left_out: dict[str, str]
) -> None:
    assert options_of(shape).keys() - set(record.__struct_fields__) <= left_out.keys()


@pytest.mark.parametrize(("answer", "shape", "left_out"), ANSWERS, ids=name_of)
def test_an_answer_shows_every_option(
    answer: type[msgspec.Struct], shape: type, left_out: dict[str, str]
) -> None:
    missing = {name for name in options_of(shape) if body_name(shape, name) not in answer.__struct_fields__}
    assert missing <= left_out.keys()


@pytest.mark.parametrize(("body", "shape", "left_out"), BODIES, ids=name_of)
def test_a_body_takes_every_option(body: Any, shape: type, left_out: dict[str, str]) -> None:
    missing = {name for name in options_of(shape) if body_name(shape, name) not in body.model_fields}
    assert missing <= left_out.keys()


@pytest.mark.parametrize(("body", "shape", "left_out"), FILTER_BODIES, ids=name_of)
def test_a_body_takes_every_filter(body: Any, shape: type, left_out: dict[str, str]) -> None:
    assert missing_filters(shape, set(body.model_fields)) == left_out.keys()


@pytest.mark.parametrize(("router", "path", "shape", "left_out"), ROUTES, ids=name_of)
def test_a_listing_over_http_takes_every_filter(
    router: APIRouter, path: str, shape: type, left_out: dict[str, str]
) -> None:
    api = FastAPI()
    api.include_router(router)
    described = api.openapi()["paths"][f"/api/tenants/{{tenant}}/{path}"]["get"]["parameters"]
    taken = {each["name"] for each in described if each["in"] == "query"}
    assert missing_filters(shape, taken) == left_out.keys()


def missing_filters(shape: type, taken: set[str]) -> set[str]:
    """The filters that are not taken, in either spelling."""
    renamed = IN_LISTS_OF_SCHEDULES if shape is ScheduleFilters else {}
    spellings = {name: {renamed.get(name, name), camel(name)} for name in options_of(shape)}
    return {name for name, accepted in spellings.items() if not accepted & taken}


@pytest.mark.parametrize(("command", "shape", "left_out"), COMMANDS, ids=name_of)
def test_a_command_takes_every_option(command: click.Command, shape: type, left_out: dict[str, str]) -> None:
    taken = {param.name for param in command.params}
    assert options_of(shape).keys() - taken <= left_out.keys()


@pytest.mark.parametrize(("table", "shape"), TABLES.items(), ids=name_of)
def test_the_reference_has_every_option(table: str, shape: type) -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    rows = text.partition(f"<!-- made: {table} -->")[2].partition("<!-- end -->")[0]
    shown = set(re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE))
    assert names_of(shape) - shown <= {"runtime"}


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
def test_what_is_not_an_option_is_refused(shape: type) -> None:
    for name, option in options_of(shape).items():
        assert isinstance(option, Option)
        assert option.help.endswith((".", "]")), name
        with pytest.raises(rota.Invalid, match=f"^{name}: "):
            option.check(name, object())


def test_every_timing_has_a_body_and_an_answer() -> None:
    assert {record for record, *_ in TIMINGS} == set(get_args(recurrence.Timing))
    assert {body for _, body, *_ in TIMINGS} == set(get_args(get_args(tenants.ScheduleType)[0]))
    assert {answer for _, _, answer, _ in TIMINGS} == set(get_args(timing_answers.ScheduleTypeAnswer))


@pytest.mark.parametrize(("record", "body", "answer", "left_out"), TIMINGS, ids=name_of)
def test_the_body_and_the_answer_of_a_timing_have_its_fields(
    record: type[msgspec.Struct], body: type[Body], answer: type[msgspec.Struct], left_out: dict[str, str]
) -> None:
    own = {*record.__struct_fields__, "end_at"} - left_out.keys()
    wanted = {IN_TIMINGS.get(name, name) for name in own} | {"description"}
    assert set(answer.__struct_fields__) == wanted
    assert set(body.model_fields) == wanted | {"type"}
    assert {answer.__struct_config__.tag, record.__struct_config__.tag} <= set(
        get_args(body.model_fields["type"].annotation)
    )


@pytest.mark.parametrize("timing", WHOLE_TIMINGS, ids=lambda timing: type(timing).__name__)
def test_an_answer_shows_all_that_was_chosen_for_a_timing(timing: recurrence.Timing) -> None:
    shown = timing_answers.schedule_type(schedule(timing=timing, end_at=NOON))
    assert msgspec.UNSET not in [getattr(shown, name) for name in shown.__struct_fields__]


@pytest.mark.parametrize("option", sorted(TIMING.keys() | {"end_at"}))
def test_the_body_of_a_timing_accepts_what_its_option_does(option: str) -> None:
    """Each option has its place in some body, under the name that a refusal gives it, and the same bounds there."""
    place = as_given(
        option, Request({"type": "http", "method": "PUT", "path": "/schedules/s", "headers": []})
    )
    name = place.removeprefix("scheduleType.")
    found = [accepted(body, name) for _, body, *_ in TIMINGS if has_field(body, name)]
    assert found
    for each in found:
        if option in LISTS:
            assert each["maxItems"] == LISTS[option]
        else:
            assert each == accepted(Declared, camel(body_name(TimingOptions, option)))


@pytest.mark.parametrize(("body", "names"), V1_TIMINGS, ids=name_of)
def test_v1_accepts_of_a_timing_what_its_option_does(body: Any, names: dict[str, str]) -> None:
    for option, name in names.items():
        wanted = accepted(Declared, camel(body_name(TimingOptions, option)))
        if option == "interval":  # whole seconds only
            wanted["anyOf"][0]["type"] = "integer"
        assert accepted(body, name) == wanted


def has_field(body: type[Body], name: str) -> bool:
    return name in {camel(field) for field in body.model_fields}


def accepted(body: Any, name: str) -> dict[str, Any]:
    """The values that a body takes for a field, as JSON Schema, without its words and null."""
    described = body.model_json_schema()
    found: dict[str, Any] = bare(described["properties"][name], described.get("$defs", {}))
    return found


def bare(schema: Any, named: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [bare(each, named) for each in schema if each != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return bare(named[schema["$ref"].rpartition("/")[2]], named)
    found = {name: bare(value, named) for name, value in schema.items() if name not in WORDS}
    either = found.get("anyOf", [])
    return either[0] if len(either) == 1 else found


WORDS = ("title", "description", "default", "examples")
