"""Fitting Rota into frameworks. Each is imported only by those who use it: begin with `fastapi`, the shortest; `django`
is an app with settings and a command of its own."""
