"""Which store of several is the master, and what each may do by its role.

A store that was a master or a copy keeps its role in `rocketstore/replication.json`. Terms count
promotions: the master of the largest term counts, and one of an earlier term is fenced.

Read in this order:
    state: `replication.json`, the role and the history of a store, and what a reader keeps of a
        history to find out later whether the log was cut.
    fence: why a master takes no puts. startup: the role that a store takes at its open.
    promotion, lease: which store is the master, by hand or by a system outside.

Of replication it imports the protocol's epochs. It uses no network.
"""
