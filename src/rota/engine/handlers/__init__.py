"""How functions become handlers: parameters filled by name and by type, JSON decoded and encoded as they say.

Begin with `signature`, which knows where each argument of a function comes from. `conversion` turns JSON into the types
that annotations name, and back. `providers` makes what an app offers by type. `functions` is what a decorated function
is afterwards (it can be called as before, and submitted), and what its app knows of it. From outside, `functions`,
`providers` and `signature` are imported.
"""
