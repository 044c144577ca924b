# Every target makes .venv by itself and renews it only when pyproject.toml has changed.
# Needs git, make and Python 3.11 or newer with venv; PYTHON=/path/to/python chooses one.

BIN := .venv/bin
STAMP := .venv/.installed
COMPILED := .venv-compiled/.installed
PURE := tests/core tests/gitops tests/sim

ifndef GPUBUDGET_SHARED
ifneq ($(wildcard ../shared/.),)
export GPUBUDGET_SHARED := $(shell cd ../shared && pwd)
endif
endif

.PHONY: help demo test check bench study compiled check-compiled fmt clean
help:
	@echo "make demo    show the whole loop on this machine, in under two minutes"
	@echo "make test    run the tests (ARGS='-k name' picks some)"
	@echo "make check   format, lint, types, tests with branch coverage: what CI runs"
	@echo "make bench   run each benchmark in turn and print its figures"
	@echo "make study   play the tuning study of docs/tuning.md anew (about an hour; ARGS='lane gaming' picks parts)"
	@echo "make compiled  build the core and the simulator's engine with mypyc in an environment of its own, for speed"
	@echo "               (three minutes, since it is trained on a made-up week; a tenth slower in one with TRAINED=)"
	@echo "make check-compiled  their tests on that build"
	@echo "make fmt     put the code in its canonical form"

demo: $(STAMP)
	$(BIN)/gpubudget demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest $(ARGS)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@# Two halves at once: what needs no processes, with coverage, and the rest.
	@$(BIN)/coverage run -m pytest $(PURE) >.venv/pure.log 2>&1 & pure=$$!; status=0; \
	$(BIN)/python -m pytest $(PURE:%=--ignore=%) || status=$$?; \
	wait $$pure || status=$$?; cat .venv/pure.log; exit $$status
	$(BIN)/coverage report

bench: $(STAMP) $(COMPILED)
	@set -e; for script in benchmarks/bench_*.py; do \
	  [ -e "$$script" ] || continue; echo "== $$script"; $(BIN)/python "$$script"; done
	@cd .venv-compiled/src; for name in core simulator; do \
	  echo "== benchmarks/bench_$$name.py, compiled"; PYTHONPATH=. ../bin/python benchmarks/bench_$$name.py; done

study: $(STAMP)
	$(BIN)/python benchmarks/study.py $(ARGS)

compiled: $(COMPILED)

# The same source with its core compiled in place, in a copy with an environment of its own. Where the C compiler can, it
# is compiled once more with what it counted while it played a week (profile-guided optimization).
TRAINED ?= yes
$(COMPILED): $(STAMP) setup.py $(wildcard gpubudget/core/*.py gpubudget/sim/*.py)
	@set -e; [ -x .venv-compiled/bin/python ] || $(BIN)/python -m venv .venv-compiled; \
	build() { CFLAGS="$$*" LDFLAGS="$$*" GPUBUDGET_COMPILE=1 ../bin/python setup.py --quiet build_ext --inplace --force; }; \
	play() { ../bin/python -m gpubudget simulate --synthetic 1 --preset lab-88 --days 7 >/dev/null 2>&1; }; \
	echo "compiling into .venv-compiled"; \
	rm -rf .venv-compiled/src; mkdir .venv-compiled/src; \
	git ls-files -z | xargs -0 cp --parents --no-dereference --target-directory .venv-compiled/src; \
	cd .venv-compiled/src; \
	../bin/python -m pip install --quiet --disable-pip-version-check 'setuptools>=77' wheel; \
	../bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'; \
	if [ -z "$(TRAINED)" ]; then build; \
	elif build -fprofile-generate="$$PWD/profile" >/dev/null 2>&1 && play && echo "compiling once more, trained" \
	  && build -fprofile-use="$$PWD/profile" -fprofile-partial-training -Wno-missing-profile; then :; \
	else echo "this C compiler cannot be trained: compiling plainly"; build; fi; \
	touch ../.installed

check-compiled: $(COMPILED)
	cd .venv-compiled/src && ../bin/python -m pytest tests/core tests/sim/test_engine.py tests/sim/test_history.py $(ARGS)

# The first interpreter that is new enough and can make an environment: a name on PATH may be a shim that cannot run.
# An environment whose own interpreter no longer runs is made anew.
$(STAMP): pyproject.toml
	@set -e; \
	good() { "$$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }; \
	if ! good $(BIN)/python; then \
	  for python in "$(PYTHON)" python3 python3.14 python3.13 python3.12 python3.11 python; do \
	    if [ -n "$$python" ] && good "$$python"; then found="$$python"; break; fi; done; \
	  if [ -z "$$found" ]; then \
	    echo "error: no Python 3.11 or newer with venv was found (Debian: apt install python3-venv; or make PYTHON=...)" >&2; \
	    exit 1; fi; \
	  "$$found" -m venv --clear .venv; fi; \
	echo "installing into .venv"; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'; \
	touch $@
