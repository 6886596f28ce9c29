"""The log of a master on its way to replicas.

Read in this order:
    quorum: how far n machines have the log.
    strangers: peers without a proof of what they are: how many, how fast.
    sent_offsets: offsets of groups, as of a moment of the log.
    log_source: the log as it is sent.
    pace: how fast bytes go out, and for how long a replica lags.
    sender: one connected replica.
    master: the thread that accepts replicas.
"""
