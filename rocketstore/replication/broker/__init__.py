"""The broker of a copy's master: its state that is not in the log.

RocketMQ's HA service sends the log alone. Topics, subscription groups, offsets of groups and of delay
levels are asked of the broker's remoting port, as its slaves do (`SlaveSynchronize`), where a copy
was given that port. Nothing is changed there.

Read in this order:
    frames: RocketMQ's remoting protocol as bytes, without a socket.
    answers: what the bodies of answers say, checked.
    side_files: the files of the copy that they become.
    service: the thread that asks now and then.

Of replication it imports the transport and the settings. Nothing of a broker is believed that can be
checked.
"""
