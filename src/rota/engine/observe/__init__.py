"""What the engine reports, and who listens: the log, metrics, traces.

Begin with `telemetry`, the observations; logic hands them out and has no log lines. `log` and `metrics` listen;
`observed` measures a store from outside; `tracing` joins submit and run in one trace.
"""
