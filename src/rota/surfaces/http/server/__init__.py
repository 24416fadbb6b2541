"""The server under the API: uvicorn, started from a process that does other things, with bounds for slow clients.

Begin with `serving`. `middleware` runs before every route; `protocol` bounds each connection (`protocol_httptools`: the
same where httptools is installed). From outside, `http/api.py` imports `middleware`, and `cli/process` imports
`serving`.
"""
