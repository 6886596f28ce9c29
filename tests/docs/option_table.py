"""`docs/options.md`, made from the table of options.

`python -m tests.docs.option_table` writes it.
"""

from __future__ import annotations

from rocketstore.config.options import Explained, explain
from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs" / "options.md"

HEAD = """# Options

An option is a keyword of `rocketstore.open`, or a field of `rocketstore.StoreConfig`.
`help(rocketstore.StoreConfig)` shows the same text. [compatibility.md](compatibility.md) lists
RocketMQ's options, also those that have no effect here.

Most programs set at most these four:

- `durability`: what survives when a put returns.
- `commit_log_file_size_bytes`: how long a file of the log is, 1 GiB by default. Its blocks are
  reserved ahead of the writer.
- `max_message_size_bytes`: the largest body. `write_buffer_bytes` follows it, and bounds a batch.
- `index_enabled`: without an index there is no `Store.query`, and nothing is kept for keys.

An option that is *kept with the store* is set when the store is made. Later opens take it from the
store's files. A size that is given and disagrees with the files is a `ConfigError`.
An option that is *given at each open* has its default unless the open names it. `Store.configure`
changes the options that may change while the store is open.

| option | what it says | default | allowed | set | RocketMQ |
| --- | --- | --- | --- | --- | --- |
"""


def row(option: Explained) -> str:
    theirs = ", ".join(f"`{name}`" for name in option.rocketmq)
    default = (
        f"`{option.default}`"
        if option.default.count('"') == 2 and option.default[-1] == '"'
        else option.default
    )
    cells = (f"`{option.name}`", option.text, default, option.allowed, option.where, theirs)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def document() -> str:
    """The whole page."""
    return HEAD + "".join(row(option) for option in explain())


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
