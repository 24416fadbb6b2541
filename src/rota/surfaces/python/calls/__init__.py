"""The calls of a queue, by what they are about: `tasks`, `workflows`, `artifacts`, `schedules`, `templates`,
`calendars`, `plans`, `forecasts`, `alarms`, `serving` (nodes, queues and limits), `tenants`.

Begin with `base`, what all of them share: whose they are, how they commit, how a listing is paged. A call checks its
arguments, commits one command or asks one question of the engine, and gives records back. It holds no rule. `client`
makes a `Queue` of them all. From outside, only `client`, `rota.testing` and the types of `rota.sync` import from here.
"""
