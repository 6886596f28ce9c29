"""The functions that users call: `open`, `scan` and `ship`.

The package `rocketstore` exports them; nothing else of the library imports them but `tools`.

Read in this order:
    open: checks the arguments of `rocketstore.open`, and has the engine open the store.
    scan: decides which part of which log `rocketstore.scan` covers; `scanning` reads it.
    ship: opens the store that `rocketstore.ship` copies; `rocketstore.shipping` copies it.

Imports: `open` needs the engine and `rocketstore.store`; `scan` and `ship` open a store by `open`.
"""
