"""The service under a bucket: its address, the requests made of it, its clock, and proof that it keeps its word.

Begin with `objects`, which gives the few requests their meaning; `requests` makes them with obstore.
"""
