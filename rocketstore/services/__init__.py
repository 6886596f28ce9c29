"""Services upon one store: each is a guest, which puts and reads as any program does.

A service has a folder of its own. `rocketstore.engine.shutdown.Guests` keeps the services of an open
store and stops them before it closes; `rocketstore.service_access` has what `Store` shows of them.
"""
