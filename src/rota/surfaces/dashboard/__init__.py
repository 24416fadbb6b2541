"""The dashboard: pages for people, rendered here, with one small script for what happens live.

Begin with `site`, which has the addresses, and `visit`, what every page is given: the queue in the caller's name. A
page asks the queue, and shows the answer; it holds no rule. `strip` draws expected times, `texts` has times and states
as people read them. `templates/` has the HTML, `static/` the style (colours and sizes in `tokens.css`) and the script.
"""

from .site import install

__all__ = ["install"]
