"""Rota in a Django project: `submit`, `submit_on_commit` and `manage.py rota`. Begin with `calls`; `apps` is the app
that Django lists.

INSTALLED_APPS = [..., "rota.contrib.django"]
ROTA = {"store": "postgresql://shop@db/shop", "app": "shop.tasks:app"}
"""

from .calls import queue, submit, submit_on_commit

__all__ = ["queue", "submit", "submit_on_commit"]
