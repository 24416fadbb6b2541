"""The service under a bucket: its address, the requests made of it, its clock, and proof that it does what a store
needs.

Begin with `bucket`, which gives the few requests their meaning. `requests` makes them with obstore.
"""
