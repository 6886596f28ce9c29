"""The log of a master on its way to replicas.

`MasterService` is the master of one open store: it accepts replicas, sends each the log from where
the replica asks, and reports how far n machines have it.

Read in this order:
    quorum: how far n machines have the log.
    sent_offsets: offsets of groups, as of a moment of the log.
    log_source: the log as it is compared, and sent.
    rates: how fast bytes go out, and for how long a replica lags.
    sender: one connected replica.
    service: the thread that accepts replicas.

Of replication it imports the protocol, the transport, the settings and the role of the store.
"""
