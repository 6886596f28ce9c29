"""Retention: whole segments leave the front of the log by age, size or use of the disk.

It decides which segments go; `engine.trim` removes them. A segment has messages of all topics, so one
rule is for all of them: rules per topic are refused (decision 0036). Of lower floors only `store`
imports it, for `Store.retention`.

Read in this order:

- `rule`: `Retention`, what a program asks for, checked.
- `plan`: `decide` makes a `RetentionPlan` out of `Facts`; it reads nothing.
- `holds`: what holds the log: groups, archives (`archive.shipped`), names that programs gave
  (`log.layout.named_holds`), other services.
- `latest`: puts the latest message of each key again before its segment goes.
- `events`: what an emergency gave up, kept with the store.
- `disk`: how far the file system is used, and which removed segments processes still hold.
- `keeper`: `Keeper` collects the facts and carries a plan out; its thread applies the rule. Ages
  are measured by a clock that does not follow a jump ahead at once.
- `service`: `StoreRetention`, what a program sees of the keeper.
"""
