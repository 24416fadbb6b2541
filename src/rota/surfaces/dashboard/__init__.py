"""The dashboard: pages for people, rendered here, with one small script for what happens live.

Begin with `site`, which has the addresses, and `visit`, what every page is given: the queue in the caller's name. A
page asks the queue, and shows the answer; it holds no rule. The pages about `schedules` and about `tasks` are packages
of their own; here are `overview`, `alarms`, `fleet` (nodes and queues), `tenants`, `admin` (keys and the audit) and
`sign_in`. `texts` has times and states as people read them, `forms` what they type. `templates/` has the HTML,
`static/` the style (colours and sizes in `tokens.css`) and the script.
"""

from .site import install, prepare

__all__ = ["install", "prepare"]
