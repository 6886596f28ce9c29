"""The parts of `tools.repair`: what is damaged, and what is written in its place.

In the order in which `repair` calls them:

- `missing_segments`: files of zeros where segments between others are lost for good; then they are
  damage, too.
- `damage`: the ranges of the log in which no record can be believed.
- `units`: queue units that point into these ranges. They become pre-blanks, or point to filler
  records.
- `pre_blanks`: pre-blanks of earlier repairs that keep RocketMQ from messages.

All other records stay where they are, and no queue offset changes. What is overwritten is copied to
quarantine first, by `repair` itself. A repair that is killed can be run again: each step finds what
an earlier run has done.

Imported by `tools.repair`; `_rebuild` asks `pre_blanks` where a queue ended.
"""
