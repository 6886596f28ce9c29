"""The parts of `rocketstore bench`.

- `sides`: what is measured. A side is one way to store or read messages, or the raw write of the
  same bytes; sides of one group take turns in the same loop, so that a slow moment of the disk
  meets all of them.
- `machine`: processor, memory, kernel and file system, without which the figures mean little.

The command deals out the time, and prints and saves the rows (`cli.commands.bench`, the only
importer). Rounds, their weights and the samples of latencies are constants of that module. A side
takes no option of its own: what differs between two runs of the bench is the machine, the size of
bodies and the durability.
"""
