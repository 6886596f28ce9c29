"""Services of one open store: each puts, reads and trims as any program does.

A service has a folder of its own, which says in which order to read its modules. Services do not
import each other. `rocketstore.engine.shutdown.Guests` keeps the services of an open store and
stops them before it closes; `rocketstore.store` has what `Store` shows of them.

- `delay`: delayed messages: what is due is put into its own topic (`put(..., delay_level=3)`,
  `Store.delayed`).
- `compaction`: the latest message of each key, in a new store (`Store.compact`); reads the
  compacted topics of RocketMQ 5 (`Store.compacted`).
- `retention`: removes segments by age, size or use of the disk (`open(retention=…)`,
  `Store.retention`).
- `transactions`: messages that are prepared first, and committed or rolled back later, in
  RocketMQ's own form (half and op messages), and messages and offsets that are put together or
  not at all.

A service keeps its state in messages of system topics and in small files of the store. `log`
imports no service and starts none. It knows RocketMQ's form of what they keep:
`log.queues.delayed_puts` names the queue in which a delayed message waits, and
`log.recovery.broker_state` sets timers of a broker aside after a cut.
"""
