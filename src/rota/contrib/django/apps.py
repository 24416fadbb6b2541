"""The app that Django lists. It has no models: Rota's tables are its own, made by `manage.py rota migrate`."""

from __future__ import annotations

from django.apps import AppConfig

__all__ = ["RotaConfig"]


class RotaConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    name = "rota.contrib.django"
    label = "rota"
    verbose_name = "Rota"
