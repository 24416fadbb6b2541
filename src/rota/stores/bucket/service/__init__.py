"""The service under a bucket: its address, the requests made of it, its clock, and proof that it does what a store
needs.

Begin with `bucket`, which makes the few requests and gives their answers a meaning. `address` says which service.
`clock` is the time as the service has it; `proof` tries its promises. Only `stores/bucket` and its archive import from
here, any of the four.
"""
