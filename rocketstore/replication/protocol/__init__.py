"""The frames between a master and a copy: both protocols, without a socket, a file or a clock.

Read in this order:
    link: what a protocol is to the loop that moves its bytes.
    classic: RocketMQ's HA service, both ends.
    epochs: which master wrote which part of a log, and how far two logs are the same.
    compression: the log on its way. frames: rocketstore's own protocol, as bytes.
    offsets: the frames of what a master has stored for its groups.
    handshake: which peer may go on. session: where a copy goes on.

It imports no other part of replication. Each end belongs to one thread; nothing of a peer is believed
that can be checked.
"""
