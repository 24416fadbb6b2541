"""Running workflows: their code is replayed over what is recorded, and goes on from there.

Begin with `replay`, which knows the code and the records and does no I/O. `runner` brings the two together with a store
and runs the steps, by `calling` their functions. `context` is what the code of a workflow calls; `event_loop` is the
loop that the code runs on; it knows which of the calls come one after the other. Questions about workflows are in
`engine/queries`. From outside, the worker imports `runner` and `calling`; `rota.public` and `rota.testing` import
`context`.
"""
