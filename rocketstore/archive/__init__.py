"""Sealed segments of a log in another place, a directory or an object store, with a manifest beside them.

`rocketstore.ship` puts them there; `rocketstore.scan` reads them as it reads a store.
"""
