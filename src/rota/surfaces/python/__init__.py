"""The Python API: `connect()` and `Queue`.

Begin with `client`. The calls of a queue are in `calls`, by what they are about. `arguments` turns the words of callers
into values of the domain, `timings` the words about time; `known_nodes` warns of kinds that nobody handles. `app` is
the registry of a program, as it connects to a queue; `signatures` is for programs that receive requests. Programs
import these names from `rota`: `public.py` lists them.
"""
