# One word for each thing one does here. `make build` needs Python 3.11 or newer, a C compiler and make;
# everything else goes into .venv, by the exact versions of requirements/build.txt.

# Another one has an environment of its own: `make test PYTHON=python3.13` builds and tests in .venv-3.13.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
JOBS ?= 2
SEED ?=
PLACE ?=

VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
VENV := .venv$(if $(filter file,$(origin PYTHON)),,-$(VERSION))
RUN := $(VENV)/bin/python
PYTEST := $(RUN) -m pytest -q $(if $(SEED),--seed=$(SEED))
TOOLS := $(VENV)/.tools
PEERS := $(VENV)/.peers
BUILT := build/.built-$(VERSION)
INSTALLED := $(VENV)/.installed
ARROW := $(VENV)/.arrow
SPARK := $(VENV)/.spark
OBJECTS := $(VENV)/objects/.installed
ETCD := build/etcd/etcd
SITE := $(VENV)/site/.installed
SANITIZED := build/sanitize
COVERAGE := build/coverage
THREADED := build/tsan
THREADED_TESTS := tests/process/test_threads.py tests/unit/test_waiting.py tests/unit/test_positions.py \
  tests/api/puts/test_tickets.py tests/log/commitlog/test_group_commit.py::test_every_waiter_is_called \
  $(addprefix tests/log/commitlog/test_,flusher.py committer.py) \
  $(addprefix tests/log/mapped_files/test_,populator.py preallocator.py)
# To a file: pytest would swallow a report on stderr together with the test that caused it.
SANITIZER_OPTIONS := log_path=report:exitcode=99
# Seconds of the whole run, which tests/support/budget.py shares out.
CI_SECONDS ?= 3000
export CI_SECONDS
# Seconds of each fuzz target; empty: those of the whole run, or 20.
FUZZ_SECONDS ?=
# Sequences of 50 steps for the model; empty: the seconds of the whole run, or 400.
MACHINE_EXAMPLES ?= $(if $(ROCKETSTORE_CAMPAIGNS),,400)
# Of lost power; empty: the seconds of the whole run, or 10,000; 1,000,000 before a release.
IMAGES ?=
# Changed places of the code, in csrc and in recovery each.
MUTANTS ?= 40
# Of the long interop runs, for each version of RocketMQ.
ROUNDS ?= 1000
CRASH_ROUNDS ?= 200
# Of the failing calls: every occurrence instead of a sample; a part of the places that make them. Of the
# changed bytes: each 23rd, or all with EVERY=1.
EVERY ?=
SITES ?=

NATIVE := setup.py $(wildcard csrc/*.c csrc/*.h rocketstore/_native/*/*.pyx rocketstore/_native/*/*.pxd \
  rocketstore/_native/*/*.h)

.PHONY: build test quick newest proofs longer model planted extras arrow spark spark-kills objects etcd crash faults flips hidden mutants demo demo-spark bench bench-peers bench-check lint types fuzz coverage \
  sanitize tsan interop interop-long fs show-venv docs site clean

build: $(BUILT) $(INSTALLED)

$(TOOLS): requirements/build.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --requirement requirements/build.txt
	@touch $@

$(BUILT): $(TOOLS) $(NATIVE)
	ROCKETSTORE_JOBS=$(JOBS) $(RUN) setup.py --quiet build_ext --inplace
	@mkdir -p build && touch $@

# Editable: Python code is used from the tree, only native code has to be built again. None of it here: it lies in
# the tree already.
$(INSTALLED): $(TOOLS) pyproject.toml | $(BUILT)
	ROCKETSTORE_ONLY=none $(RUN) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# pyspark, pyarrow and a Java runtime: some 500 MB that only `make spark` needs.
$(SPARK): requirements/spark.txt $(TOOLS)
	$(RUN) -m pip install --quiet --requirement requirements/spark.txt
	@touch $@

# PLACE=services: the tests of that folder of tests/ alone, or of one file, or of several. Stores are in memory, where
# a sync takes no time; proofs have theirs on a disk, and MEMORY= puts these there as well.
# Compiled Python is kept whatever the environment says: else each process compiles all that it imports.
MEMORY ?= /dev/shm
test: build
	PYTHONDONTWRITEBYTECODE= ROCKETSTORE_IN_MEMORY=$(MEMORY) $(PYTEST) --durations=20 -m "not proof and not java and not spark" -n $(JOBS) --dist worksteal $(addprefix tests/,$(PLACE))

# After an edit: the structure of the tree and the tests marked quick, in half a minute.
quick: build
	PYTHONDONTWRITEBYTECODE= $(PYTEST) -m quick -n $(JOBS) --dist worksteal $$(grep -rl --include='test_*.py' 'mark\.quick' tests)

# The quick tests on the newest Python that is here, beside the one of .venv.
newest:
	@newest=$$($(PYTHON) tests/support/pythons.py) || { echo "skipped: $$newest"; exit 0; }; \
	  $(MAKE) --no-print-directory quick PYTHON="$$newest" JOBS=$(JOBS)

# The tests that need a SparkSession; those of tests/spark that need none are among `make test`.
spark: build $(SPARK) $(OBJECTS)
	$(PYTEST) tests/spark

# A streaming copy whose processes are all killed, ROUNDS times: half a minute each.
spark-kills: ROUNDS = 30
spark-kills: build $(SPARK)
	ROCKETSTORE_SPARK_KILLS=$(ROUNDS) $(PYTEST) -s tests/spark/sink/test_kills_spark.py

# All the parts of tests/support/budget.py but lint and test, two at a time, in CI_SECONDS.
proofs: build
	$(RUN) -m tests.support.whole_run --proofs

# What `make proofs` installs, before several parts need it at once.
extras: $(ARROW) $(SPARK) $(OBJECTS)

# The tests marked proof that no other target runs: kills, leaks, long recoveries, other machines.
longer: build
	$(PYTEST) --timeout=1500 -m "proof and not spark" --ignore=tests/filesystems \
	  --ignore=tests/seeded_faults --ignore=tests/syscall_faults/test_every_call.py \
	  --ignore=tests/syscall_faults/test_strace_sweep.py --ignore=tests/corruption/test_byte_flips.py \
	  --ignore=tests/corruption/test_mutated_stores.py --ignore=tests/corruption/test_hidden_messages.py

# A plain model of the store and random sequences of steps.
model: build
	ROCKETSTORE_MACHINE_EXAMPLES=$(MACHINE_EXAMPLES) $(PYTEST) --timeout=1500 tests/model

# Faults put into copies of the tree: each has to be caught.
planted: build
	$(PYTEST) --timeout=1500 -n $(JOBS) --dist worksteal tests/seeded_faults

# Scans as Arrow, polars, pandas and DuckDB, which are installed for it; archives, also in an object store.
arrow: build $(ARROW) $(OBJECTS)
	$(PYTEST) tests/arrow tests/archive

$(ARROW): $(TOOLS) requirements/arrow.txt
	$(RUN) -m pip install --quiet --requirement requirements/arrow.txt
	@touch $@

# A server that speaks S3, for the tests of archives.
objects: $(OBJECTS)

$(OBJECTS): requirements/objects.txt $(TOOLS)
	$(RUN) -m venv --clear $(VENV)/objects
	$(VENV)/objects/bin/python -m pip install --quiet --requirement requirements/objects.txt
	@touch $@

# An etcd for tests/replication, out of its modules: a minute and a half of Go. One on the PATH does as well.
etcd: $(ETCD)

$(ETCD): $(wildcard tests/replication/etcd_go/*)
	cd tests/replication/etcd_go && go build -trimpath -ldflags='-s -w' -o $(CURDIR)/$@ .

# Images of disks that lost their power, each recovered and judged.
crash: build
	$(RUN) -m tests.power_loss $(if $(IMAGES),--images $(IMAGES)) --jobs $(JOBS) $(if $(SEED),--seed $(SEED))

# Every call of the table fails, one at a time, in each scene of a store's life. EVERY=1: each occurrence
# of each call, which takes long; SITES=flusher: only calls that lead there.
faults: build
	ROCKETSTORE_EVERY=$(EVERY) ROCKETSTORE_FAULT_SITES=$(SITES) ROCKETSTORE_FAULT_JOBS=$(JOBS) \
	  $(PYTEST) -s --timeout=14400 tests/syscall_faults/test_every_call.py tests/syscall_faults/test_strace_sweep.py

# Bytes of the reference store changed, files cut; EVERY=1: each of them, with a table by field.
flips: build
	ROCKETSTORE_FLIP_STRIDE=$(or $(EVERY),$(if $(ROCKETSTORE_CAMPAIGNS),197,23)) $(PYTEST) -s --timeout=7200 tests/corruption/test_byte_flips.py tests/corruption/test_mutated_stores.py

# Pieces of queues and index of stores get lost at random; STORES=10000 of them.
hidden: build
	ROCKETSTORE_HIDDEN=$(STORES) $(PYTEST) -s --timeout=36000 tests/corruption/test_hidden_messages.py

# Random changes of csrc and of recovery, and which of them no test notices. An hour for a hundred.
mutants: build
	$(RUN) -m tests.mutation --csrc $(MUTANTS) --recovery $(MUTANTS) $(if $(SEED),--seed $(SEED))

demo: build
	$(RUN) examples/demo.py

# A session from pip alone: pyspark, and a Java where the machine has none.
demo-spark: build $(SPARK)
	$(RUN) examples/spark_totals.py demo-store-spark

bench: build
	$(RUN) -m pytest -q bench

# Beside lmdb, rocksdict, sqlite3 and others, in one run; writes tables and rounds to bench/results and the picture
# docs/img/peers.svg.
$(PEERS): requirements/peers.txt $(TOOLS)
	$(RUN) -m pip install --quiet --requirement requirements/peers.txt
	@touch $@

bench-peers: build $(PEERS)
	$(RUN) -m bench.peers --results bench/results --picture docs/img/peers.svg

# Ratios, and instructions where valgrind is installed, against bench/baseline.json; says what it did not look at.
bench-check: build
	$(RUN) -m bench.check

lint: $(TOOLS)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: build
	$(RUN) -m mypy
	$(PYTEST) tests/structure/test_stubs.py

fuzz: $(TOOLS)
	$(RUN) -m tests.fuzz $(FUZZ_SECONDS) --jobs $(JOBS) $(if $(SEED),--seed $(SEED))

# Which branches of csrc the unit tests and the fuzz targets take. Needs gcc with gcov.
coverage: build
	mkdir -p $(COVERAGE)/tree
	find $(COVERAGE) -name '*.gcda' -delete
	tar -cf - --exclude='*.so' --exclude=__pycache__ csrc rocketstore tests setup.py pyproject.toml README.md LICENSE \
	  | tar -xf - -C $(COVERAGE)/tree
	cd $(COVERAGE)/tree && ROCKETSTORE_COVERAGE=1 ROCKETSTORE_DEBUG=1 ROCKETSTORE_JOBS=$(JOBS) \
	  ../../../$(RUN) setup.py --quiet build_ext --inplace
	cd $(COVERAGE)/tree && ../../../$(PYTEST) -p no:cacheprovider tests/unit tests/log tests/api \
	  tests/vectors/test_vectors.py
	$(MAKE) -C tests/fuzz covered BUILD=../../$(COVERAGE)/fuzz
	$(RUN) tests/fuzz/coverage.py --missing $(COVERAGE)

# RocketMQ's own store beside ours. Needs a JDK (11 or newer) and Maven; skipped without them. Its three
# generations run at the same time, since a RocketMQ that stops sleeps for seconds.
interop: build
	$(PYTEST) -m "java and not proof" -n 3 --dist loadscope tests/interop

interop-long: build
	ROCKETSTORE_INTEROP_ROUNDS=$(ROUNDS) $(PYTEST) -s tests/interop/test_alternating.py
	ROCKETSTORE_CRASH_ROUNDS=$(CRASH_ROUNDS) $(PYTEST) -s --timeout=3600 tests/interop/test_crash.py -k killed

# Real file systems: power cuts, full and failing disks. Needs root; without xfsprogs, btrfs-progs or
# fuse3 what they are for is skipped.
fs: build
	$(PYTEST) -s --timeout=600 tests/filesystems

# A second tree, built with AddressSanitizer and UndefinedBehaviorSanitizer. Leak detection is off:
# CPython itself keeps memory until the process ends.
sanitize: build
	mkdir -p $(SANITIZED)
	find $(SANITIZED)/tests $(SANITIZED)/rocketstore -type f ! -name '*.so' -delete 2>/dev/null || true
	tar -cf - --exclude='*.so' --exclude=__pycache__ csrc rocketstore tests setup.py pyproject.toml README.md LICENSE \
	  | tar -xf - -C $(SANITIZED)
	cd $(SANITIZED) && ROCKETSTORE_SANITIZE=address,undefined ROCKETSTORE_JOBS=$(JOBS) \
	  ../../$(RUN) setup.py --quiet build_ext --inplace
	rm -f $(SANITIZED)/report.*
	cd $(SANITIZED) && { LD_PRELOAD="$$($(CC) -print-file-name=libasan.so)" PYTHONMALLOC=malloc \
	  ASAN_OPTIONS=$(SANITIZER_OPTIONS):detect_leaks=0:allocator_may_return_null=1:handle_segv=0:handle_sigbus=0 \
	  UBSAN_OPTIONS=$(SANITIZER_OPTIONS):print_stacktrace=1:halt_on_error=1 \
	  ../../$(PYTEST) tests/unit tests/log/layout || { cat report.* 2>/dev/null; exit 1; }; }

# A third tree, built with ThreadSanitizer, for what runs in several threads. Needs util-linux (setarch): the
# sanitizer wants addresses that are not random. It does not know fences, and says so while it compiles.
tsan: build
	mkdir -p $(THREADED)
	tar -cf - --exclude='*.so' --exclude=__pycache__ csrc rocketstore tests setup.py pyproject.toml README.md LICENSE \
	  | tar -xf - -C $(THREADED)
	cd $(THREADED) && ROCKETSTORE_SANITIZE=thread ROCKETSTORE_JOBS=$(JOBS) \
	  ../../$(RUN) setup.py --quiet build_ext --inplace
	rm -f $(THREADED)/report.*
	cd $(THREADED) && setarch -R env LD_PRELOAD="$$($(CC) -print-file-name=libtsan.so)" \
	  TSAN_OPTIONS=log_path=report:history_size=4 ../../$(PYTEST) $(THREADED_TESTS)
	@! cat $(THREADED)/report.* 2>/dev/null && echo "tsan: no reports"

show-venv:
	@echo $(VENV)

docs: build
	$(PYTEST) tests/docs

# The documents as a web site in build/site. Every warning is an error: a link to nowhere, a page in no list.
site: $(SITE)
	$(RUN) site/stage.py build/site-source
	$(VENV)/site/bin/python -m sphinx -W --keep-going -q -b html -c site -d build/site-trees build/site-source build/site
	@echo "build/site/index.html"

$(SITE): requirements/site.txt $(TOOLS)
	$(RUN) -m venv --clear $(VENV)/site
	$(VENV)/site/bin/python -m pip install --quiet --requirement requirements/site.txt
	@touch $@

clean:
	rm -rf build dist demo-store* *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find rocketstore tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f rocketstore/_native/*.so rocketstore/_native/*/*.so
