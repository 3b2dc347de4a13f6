# make demo   runs the main job in a fresh environment
# make test   runs everything that must pass
# make fast   runs what matters while working, in about a minute
# make fuzz   asks random problems, for hours: is the noise as stated, are neighbours told apart?
PYTHON ?= python3
VENV := .venv
LOWEST ?= tests
# how long make fuzz runs (20000: two hours on two quiet cores), and from which seed
EXAMPLES ?= 20000
SEED ?= $(shell date +%s)
BIN := $(VENV)/bin
# two processes, each with half of the tests; whoever is done takes over from the other, so that
# a server or a design that a room shares is made about once
PYTEST = $(BIN)/python -m pytest -n 2 --dist worksteal
# small matrices everywhere: one BLAS thread is the fastest and the most repeatable
export OPENBLAS_NUM_THREADS ?= 1
# the tests start hundreds of processes: each would compile all sources again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test cluster test-cluster fast kernels fuzz check lowest docs bench lock clean

$(VENV)/demo.stamp: pyproject.toml requirements/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements/constraints.txt -e ".[all]"
	touch $@

# what an extra brings, on top of what it needs
$(VENV)/test.stamp $(VENV)/docs.stamp: $(VENV)/demo.stamp
$(VENV)/bench.stamp $(VENV)/cluster.stamp: $(VENV)/test.stamp
$(VENV)/%.stamp:
	$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements/constraints.txt -e ".[$*]"
	touch $@

demo: $(VENV)/demo.stamp
	$(BIN)/python examples/first_minute.py demo-output
	@echo
	@echo "4. The paper that this rests on, reproduced (about two minutes)"
	$(BIN)/affinedp reproduce all --out demo-output
	@echo "next: docs/tutorials/verify.md, or your own equations: affinedp verify examples/cells.toml"

check: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -n 2
	$(BIN)/lint-imports

test: check
	$(PYTEST)

# engines that are too large for everyone's tests: Spark and Ray, in their local modes; make test
# leaves them out even where they are installed
cluster: $(VENV)/cluster.stamp

test-cluster: $(VENV)/cluster.stamp
	TEST_CLUSTER=1 $(BIN)/python -m pytest -rs tests/release/test_spark.py tests/release/test_ray.py \
		tests/release/test_parts.py tests/tables/test_in_parts.py tests/tables/test_engine_counts.py

# the rooms that every promise rests on, without the tests that take a second or more
FAST := -m "not slow" $(wildcard $(addprefix tests/,exact domains neighbours laws privacy \
	strategies release stream budget files cli test_package.py test_rooms.py))

fast: check
	$(PYTEST) $(FAST)

# other processors take other kernels of OpenBLAS, which round in another order
kernels: $(VENV)/test.stamp
	OPENBLAS_CORETYPE=Haswell $(PYTEST) $(FAST)
	OPENBLAS_CORETYPE=Prescott $(PYTEST) $(FAST)

fuzz: $(VENV)/test.stamp
	@echo "make fuzz SEED=$(SEED) EXAMPLES=$(EXAMPLES)"
	FUZZ_EXAMPLES=$(EXAMPLES) $(PYTEST) tests/fuzz --hypothesis-profile=fuzz \
		--hypothesis-seed=$(SEED) --hypothesis-show-statistics

# the lowest versions that pyproject.toml allows, in an environment of their own
lowest:
	$(PYTHON) -m venv --clear $(VENV)/lowest
	$(VENV)/lowest/bin/python -m pip install -q --disable-pip-version-check uv
	$(VENV)/lowest/bin/uv pip install -q --python $(VENV)/lowest/bin/python --resolution lowest-direct \
		--only-binary :all: --no-binary affinedp -e ".[test]"
	$(VENV)/lowest/bin/python -m pytest -n 2 --dist worksteal $(LOWEST)

docs: $(VENV)/docs.stamp
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/weigh.py docs/_build/html
	@echo "open docs/_build/html/index.html"

bench: $(VENV)/bench.stamp
	$(BIN)/python benchmarks/run.py

# the exact versions of the test environment, for requirements/constraints.txt
lock: $(VENV)/bench.stamp $(VENV)/docs.stamp $(VENV)/cluster.stamp
	$(BIN)/python -m pip freeze --exclude-editable > requirements/constraints.txt

clean:
	rm -rf $(VENV) docs/_build docs/generated demo-output .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
