"""A queue behind a server: what `rota --server` asks, as calls over HTTP.

Begin with `queue`. `wire` says which calls there are, who may make them, and how arguments and answers are written; the
server's side is `http/tenants/calls.py`. From outside, the command line imports `queue`, and `http/tenants` imports
`wire`."""
