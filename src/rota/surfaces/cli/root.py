"""The tree of commands, and its completion. Only names and one line each: a command is imported when it is called."""

from __future__ import annotations

import click

from ... import __version__
from .command import Command, Entry, Group, Root, help_if_alone

_RUN = {
    "up": Entry(
        "process.commands:up",
        "Scheduler, worker, janitor and HTTP API in one process. --demo shows how it feels.",
    ),
    "worker": Entry("process.commands:worker", "Run the tasks of an app."),
    "serve": Entry("process.commands:serve", "Serve the HTTP API."),
    "scheduler": Entry("root:scheduler", "Fire schedules."),
    "monitor": Entry("process.commands:monitor", "Return lost tasks, mark expiries, forget what is old."),
    "tick": Entry("process.commands:tick", "One pass of everything, for those who bring their own cron."),
}
_TASKS = {
    "submit": Entry("commands.tasks:submit", "Submit a task, or one for each line of a file."),
    "status": Entry("commands.tasks:status", "Everything about one task."),
    "list": Entry("commands.tasks:list_tasks", "The newest tasks."),
    "history": Entry("commands.tasks:history", "What happened to a task, one line per version."),
    "artifacts": Entry("commands.artifacts:list_artifacts", "What a task left: its result, texts and files."),
    "artifact": Entry("root:artifact", "Get one of them."),
    "cancel": Entry("commands.tasks:cancel", "Cancel tasks."),
    "replay": Entry("commands.tasks:replay", "Run failed or cancelled tasks again."),
    "archive": Entry("commands.tasks:archive", "Put ended tasks away."),
    "wait": Entry("commands.tasks:wait", "Wait until tasks have ended."),
    "tail": Entry("commands.tail:tail", "Follow what happens to tasks, live."),
}
_WORKFLOWS = {"workflow": Entry("root:workflow", "Start, look at, signal and cancel workflows.")}
_SCHEDULES = {
    "template": Entry("root:template", "Store what to run: kinds, shell commands, HTTP requests."),
    "calendar": Entry("root:calendar", "Name days and hours that schedules leave out, or keep to."),
    "schedule": Entry("root:schedule", "Create, look at and change schedules."),
    "preview": Entry(
        "commands.schedule_views:preview_expression", "When would this expression fire? Needs no store."
    ),
}
_AHEAD = {
    "forecast": Entry(
        "commands.forecasts:forecast", "How many runs are coming, and in which minutes they meet."
    ),
    "spread": Entry("commands.forecasts:spread", "Spread those that meet in one minute over a while."),
}
_FILES = {
    "plan": Entry("commands.plans:plan", "What would a file of schedules change, and which times?"),
    "apply": Entry("commands.plans:apply", "Make the store say what a file says."),
    "export": Entry("commands.plans:export", "Write all schedules and templates as such a file."),
    "import": Entry("root:importing", "Make such a file of a crontab."),
}
_ALARMS = {
    "alarms": Entry("commands.alarms:alarms", "What is late, stopped, failing or stuck."),
    "alarm-rules": Entry("commands.alarms:rules", "What is to be an alarm, for all schedules of a tag."),
}
_WORKERS = {
    "workers": Entry("commands.serving:workers", "Who is alive, and what each handles."),
    "queue": Entry("root:queue", "Look into queues, pause, resume and limit them."),
    "limits": Entry("commands.serving:limits", "How many tasks of which kind or queue may run."),
}
_ACCESS = {
    "keys": Entry("root:keys", "Create, list and revoke the keys of the HTTP API."),
    "tenant": Entry("root:tenant", "Create, limit and suspend tenants."),
}
_STORE = {
    "migrate": Entry("commands.store:migrate", "Bring the store's schema up to date."),
    "doctor": Entry("commands.store:doctor", "Look for trouble, and say what to do about it."),
    "config": Entry("commands.store:config", "What is set, and where it came from."),
    "completion": Entry("root:completion", "Completion for bash, zsh or fish."),
}


@click.group(
    cls=Root,
    sections={
        "Run": _RUN,
        "Tasks": _TASKS,
        "Workflows": _WORKFLOWS,
        "Schedules": _SCHEDULES,
        "What is coming": _AHEAD,
        "Schedules in a file": _FILES,
        "Alarms": _ALARMS,
        "Workers": _WORKERS,
        "Access": _ACCESS,
        "Store": _STORE,
    },
    examples=[
        "rota up --demo",
        'rota submit -t send_reminder -i \'{"user_id":"123"}\' --in 1h',
        "rota schedule create daily-report -t report --cron '0 9 * * *'",
        "rota schedule why daily-report 2026-03-08T02:00",
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="rota %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A durable scheduler and task queue, on the store you already have."""
    help_if_alone()
    if ctx.invoked_subcommand is None:
        from .apps import next_command

        click.echo(f"\n{next_command()}", color=ctx.color)


_INSTALL = {
    "bash": 'eval "$(rota completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(rota completion zsh)"       # in ~/.zshrc',
    "fish": "rota completion fish | source       # in ~/.config/fish/config.fish",
}


@click.command(cls=Command, examples=list(_INSTALL.values()))
@click.argument("shell", type=click.Choice(list(_INSTALL)))
def completion(shell: str) -> None:
    """Print the completion script of a shell: commands, options, names of schedules and templates, ids of tasks,
    kinds and zones."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    maker = found(cli, {}, "rota", "_ROTA_COMPLETE")
    script = maker.source_template % maker.source_vars()
    # For fish: descriptions have commas, too.
    click.echo(script.replace('string split ","', 'string split -m 1 ","'))


_CHANGE = {
    "create": Entry("commands.schedules:create", "Create a schedule."),
    "update": Entry("commands.schedules:update", "Change what is named, nothing else."),
    "pause": Entry("commands.schedules:pause", "Stop firing until it is resumed."),
    "resume": Entry("commands.schedules:resume", "Fire again, from the first time after now."),
    "enable": Entry("commands.schedules:resume", "The same as resume."),
    "disable": Entry("commands.schedules:pause", "The same as pause."),
    "backfill": Entry("commands.schedules:backfill", "Run times of the past that have not run."),
    "trigger": Entry("commands.schedules:trigger", "Run it now, beside its times."),
    "delete": Entry("commands.schedules:delete", "Delete it: hidden, history kept, restorable."),
    "restore": Entry("commands.schedules:restore", "Bring a deleted schedule back."),
}
_LOOK = {
    "list": Entry("commands.schedule_views:list_schedules", "All schedules, and when each is next due."),
    "show": Entry(
        "commands.schedule_views:show", "One schedule in words, with its next times and last runs."
    ),
    "runs": Entry("commands.schedule_views:runs", "The ledger: every expected time, and what became of it."),
    "preview": Entry("commands.schedule_views:preview", "The next times of a schedule."),
    "why": Entry("commands.schedule_views:why", "Why did it run, or not, at that time?"),
    "history": Entry("commands.schedule_views:history", "Who changed what, and when."),
}


schedule = Group(
    help="Create, look at and change schedules. A schedule is named by its id, such as daily-report.",
    sections={"Look": _LOOK, "Change": _CHANGE},
    hidden_names={"run": "process.commands:run_scheduler"},
    examples=[
        "rota schedule create nightly --task-type backup --cron '0 3 * * *' --timezone Europe/London",
        "rota schedule show nightly",
        "rota schedule why nightly 2026-03-08T03:00",
    ],
)


template = Group(
    help="Store what to run, apart from when: a kind of task, a shell command, an HTTP request.",
    sections={
        "Look": {
            "list": Entry("commands.templates:list_templates", "The stored templates, newest first."),
            "show": Entry("commands.templates:show", "One template."),
        },
        "Change": {
            "create": Entry("commands.templates:create", "Store what to run, under a name."),
            "update": Entry("commands.templates:update", "Change what is named, nothing else."),
            "execute": Entry("commands.templates:execute", "Run it now."),
            "delete": Entry("commands.templates:delete", "Remove it, and delete its schedules."),
        },
    },
    examples=[
        "rota template create backup --shell 'pg_dump shop > /backup/shop.sql'",
        "rota template execute backup",
        "rota schedule create nightly --template backup --cron '0 3 * * *'",
    ],
)


calendar = Group(
    help="Name days and hours once: schedules leave them out (--exclude), or keep to them (--only).",
    sections={
        "Look": {
            "list": Entry("commands.calendars:list_calendars", "All calendars, by name."),
            "show": Entry("commands.calendars:show", "One calendar."),
        },
        "Change": {
            "create": Entry("commands.calendars:create", "Store days and windows under a name."),
            "update": Entry("commands.calendars:update", "Change it; its schedules are planned anew."),
            "delete": Entry("commands.calendars:delete", "Remove it, if no schedule names it."),
        },
    },
    examples=[
        "rota calendar create closing-days --day 2027-12-24 --day 2027-12-31",
        "rota calendar create weekends --rule 'FREQ=WEEKLY;BYDAY=SA,SU'",
        "rota schedule create nightly -t backup --cron '0 3 * * *' --exclude closing-days --exclude weekends",
    ],
)


workflow = Group(
    help="Start, look at, signal and cancel workflows. A run is named by its id.",
    sections={
        "Look": {
            "list": Entry("commands.workflows:list_workflows", "The newest runs."),
            "show": Entry("commands.workflows:show", "What a run did, and what it waits for."),
        },
        "Change": {
            "start": Entry("commands.workflows:start", "Start a workflow."),
            "signal": Entry("commands.workflows:signal", "Send a signal to a run."),
            "cancel": Entry("commands.workflows:cancel", "Cancel a run, and undo what it did."),
            "replay": Entry("commands.workflows:replay", "Run again what failed, from a step on."),
        },
    },
    examples=[
        'rota workflow start order -i \'{"sku":"lamp"}\'',
        "rota workflow show $ID",
        "rota workflow signal $ID paid 40",
    ],
)


importing = Group(
    help="Make a file of schedules out of what another scheduler has. It changes nothing by itself.",
    sections={"From": {"crontab": Entry("commands.plans:crontab", "A crontab, of a user or of the system.")}},
    examples=["rota import crontab -o rota.yaml", "rota apply rota.yaml"],
)


scheduler = Group(
    help="Fire schedules. Any number may run at once: each due time starts one task.",
    sections={"Run": {"run": Entry("process.commands:run_scheduler", "Fire schedules until stopped.")}},
    examples=["rota scheduler run"],
)


artifact = Group(
    help="Get what a task left. `rota artifacts ID` lists it.",
    sections={"Look": {"get": Entry("commands.artifacts:get", "Write one to stdout or to a file.")}},
    examples=["rota artifact get 01997c1e-6b1f-7d61-a6a5-4ed0a1f6cf0e report.pdf -o report.pdf"],
)


queue = Group(
    help="Look into queues, pause, resume and limit them.",
    sections={
        "Look": {"list": Entry("commands.serving:list_queues", "Every queue, and how much is in it.")},
        "Change": {
            "pause": Entry("commands.serving:pause", "Let no worker take its tasks."),
            "resume": Entry("commands.serving:resume", "Let workers take its tasks again."),
            "drain": Entry("commands.serving:drain", "Pause it, and wait until nothing of it runs."),
            "limit": Entry("commands.serving:limit", "Limit its tasks, or show its limit."),
        },
    },
    examples=[
        "rota queue list",
        "rota queue pause mail --note 'the mail server is moving'",
        "rota queue resume mail",
        "rota queue limit mail --rate 50/s --concurrency 10",
    ],
)


keys = Group(
    help="Create, list and revoke the keys of the HTTP API. Stored is only a hash of each.",
    sections={
        "Keys": {
            "create": Entry("commands.access:create_key", "Make a key. It is shown once."),
            "list": Entry("commands.access:list_keys", "All keys, and which were revoked."),
            "revoke": Entry("commands.access:revoke_key", "End a key."),
        }
    },
    examples=[
        "rota keys create --tenant acme --role operator --name ci",
        "rota keys list --tenant acme",
        "rota keys revoke ci --tenant acme",
    ],
)


tenant = Group(
    help="Create, limit and suspend tenants. A tenant that was not created can be used, too: with the default limits.",
    sections={
        "Look": {
            "list": Entry("commands.access:list_tenants", "Every tenant, what it has and what it may have.")
        },
        "Change": {
            "create": Entry("commands.access:create_tenant", "Create a tenant."),
            "limits": Entry("commands.access:limits", "Show the limits of a tenant, or change them."),
            "suspend": Entry("commands.access:suspend_tenant", "Let nothing new begin there."),
            "resume": Entry("commands.access:resume_tenant", "End a suspension."),
        },
    },
    examples=[
        "rota tenant create acme --max-schedules 100 --max-pending 10000 --min-interval 10s --max-input 1MB",
        "rota tenant limits acme",
        "rota tenant suspend acme --note 'invoice 2026-07 is open'",
    ],
)
