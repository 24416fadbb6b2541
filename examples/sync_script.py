"""A script without an event loop: it submits, looks, and leaves the work to whoever runs the workers.

prints

    3 pending, the first with priority 200
    the same task: True
    1 cancelled
    fires next: 1 January 2030, 00:00 UTC
"""

from datetime import UTC, datetime, timedelta

import rota.sync


def main() -> None:
    with rota.sync.connect("memory:") as queue:
        first = queue.submit("mail", {"to": "ada"}, priority=200, idempotency_key="welcome-ada")
        queue.submit("mail", {"to": "grace"}, schedule_at=datetime.now(UTC) + timedelta(hours=1))
        queue.submit("mail", {"to": "alan"}, ttl=timedelta(minutes=5))
        print(f"{queue.count(status='pending')} pending, the first with priority {first.priority}")

        again = queue.submit("mail", {"to": "ada"}, priority=200, idempotency_key="welcome-ada")
        print("the same task:", again.id == first.id)

        queue.cancel(first.id, "a test")
        print(queue.count(status="cancelled"), "cancelled")

        queue.create_schedule(
            "new-year", task_type="mail", input={"to": "all"}, run_at=datetime(2030, 1, 1, tzinfo=UTC)
        )
        (time,) = queue.preview("new-year")
        print(f"fires next: {time.local.day} {time.local:%B %Y, %H:%M %Z}")


if __name__ == "__main__":
    main()
