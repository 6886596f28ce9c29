"""What every test may use: a printed seed, a small store, fast thread changes, skips."""

from __future__ import annotations

import gc
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout
from tests.interop.oracle import missing_tools
from tests.support import campaign

if TYPE_CHECKING:
    from rocketstore import Store, Writer
    from rocketstore.config import StoreConfig

SEED = pytest.StashKey[int]()
#: A proof may build the extensions anew and run for minutes; other tests have the limit of pyproject.toml.
PROOF_TIMEOUT_S = 1200
#: What a run may need of the memory: some 1 GiB, and as much again where tests fail.
MEMORY_BYTES = 4 << 30
# A busy machine is no fault of an example.
hypothesis.settings.register_profile("rocketstore", deadline=None)
hypothesis.settings.load_profile("rocketstore")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed", type=int, default=None, help="seed of every random test (default: a new one)"
    )


def temporary() -> str:
    """Where temporary directories are: in memory when ROCKETSTORE_IN_MEMORY names a directory that has room."""
    memory = os.environ.get("ROCKETSTORE_IN_MEMORY", "")
    if os.path.isdir(memory) and shutil.disk_usage(memory).free >= MEMORY_BYTES:
        return memory
    return tempfile.gettempdir()


def own_temporary_root() -> str:
    """Where this run has its temporary directories: runs of pytest that share one root remove each other's
    at their end, and fail where one is quicker. What ended runs have left is removed."""
    runs = Path(temporary(), f"rs-{os.getuid()}")
    runs.mkdir(mode=0o700, exist_ok=True)
    for run in runs.iterdir():
        try:
            os.kill(int(run.name), 0)
        except ProcessLookupError:
            shutil.rmtree(run, ignore_errors=True)
    own = runs / str(os.getpid())
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(mode=0o700)
    return str(own)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # workers have directories in that of their run
        os.environ["PYTEST_DEBUG_TEMPROOT"] = own_temporary_root()
    # Workers of a parallel run take the seed of the run that started them: one number tells all.
    given = config.getoption("--seed")
    if given is None:
        given = getattr(config, "workerinput", {}).get("seed")
    config.stash[SEED] = secrets.randbits(32) if given is None else given
    # A shell has what it runs in the background ignore Ctrl-C; tests send it to themselves and to children.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """No collection of a test looks at the tests themselves: that took a second each."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    node.workerinput["seed"] = node.config.stash[SEED]  # type: ignore[attr-defined]


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["told"] = campaign.TOLD


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    campaign.TOLD.extend(getattr(node, "workeroutput", {}).get("told", []))


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.stash[SEED]} (again with --seed={config.stash[SEED]})"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    no_root = pytest.mark.skip(reason="needs root")
    no_java = missing_tools()
    for item in items:
        if "root" in item.keywords and os.geteuid() != 0:
            item.add_marker(no_root)
        if "java" in item.keywords and no_java:
            item.add_marker(pytest.mark.skip(reason=no_java))
        if "proof" in item.keywords and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PROOF_TIMEOUT_S))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in campaign.TOLD:
        terminalreporter.write_line(line)


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A directory on a disk where there is one, although `tmp_path` may be in memory."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture
def store_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the marker `store` of a test says: options, and names of parameters that are options."""
    marker = request.node.get_closest_marker("store")
    named = {name: request.getfixturevalue(name) for name in marker.args} if marker else {}
    return {**named, **marker.kwargs} if marker else {}


@pytest.fixture
def store(tmp_path: Path, store_options: dict[str, Any]) -> Iterator[Store]:
    """A store of small files in `tmp_path`, with the options of the marker `store`. Name it last among
    the arguments: it closes before what a test has changed is changed back."""
    from tests.support.small_store import open_small

    with open_small(tmp_path, **store_options) as opened:
        yield opened


@pytest.fixture
def writer(store: Store) -> Writer:
    """A writer of the store's topic "orders"."""
    return store.writer("orders")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a store may be made; nothing is there yet."""
    return tmp_path / "store"


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    """A new store's directories, and nothing in them."""
    layout = StoreLayout(tmp_path / "store")
    make_directories(layout)
    return layout


@pytest.fixture
def random_seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own, made from the run's seed and its name; shown when it fails."""
    run_seed = request.config.stash[SEED]
    own = random.Random(f"{run_seed}:{request.node.nodeid}").getrandbits(63)
    print(f"random_seed = {own} (--seed={run_seed})")
    return own


@pytest.fixture
def rng(random_seed: int) -> random.Random:
    """A generator that starts at `random_seed`."""
    return random.Random(random_seed)


@pytest.fixture
def small_switch_interval() -> Iterator[None]:
    """Threads change every 10 µs, so that orders that are rare in production happen in a test."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def small_config() -> StoreConfig:
    """Files so small that a few dozen messages roll segments, queue files and index files."""
    from rocketstore.config import StoreConfig

    return StoreConfig(
        commit_log_file_size_bytes=64 * 1024,
        consume_queue_file_size_bytes=64 * 20,
        index_slots=100,
        index_entries=400,
        max_message_size_bytes=16 * 1024,
        write_buffer_bytes=64 * 1024,
    )
