"""The log of a master on its way to replicas.

Read in this order:
    quorum: how far n machines have the log.
    strangers: what peers may cost that have proved nothing.
    sent_offsets: offsets of groups, as of a moment of the log.
    log_source: the log as it is sent.
    pace: how fast bytes go out, and for how long a replica lags.
    sender: one connected replica.
    master: the thread that accepts replicas.
"""
