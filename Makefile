PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ROUNDS ?= 3
STATIC = $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
# Test processes: two suit any machine, more are faster where there are more cores.
JOBS ?= 2
PYTEST = $(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup

.PHONY: reproduce page check test lint bench docs browse dist clean

# The main job: train the paper's methods on bundled data and write a report.
reproduce: $(VENV)/.installed
	$(BIN)/python -m paper $(DATASETS) --fresh --rounds $(ROUNDS) --out reproduction

# docs/reproduction.md and its figures, from the last report.
page:
	sed 's|(figures/|(images/reproduction-|' reproduction/report.md > docs/reproduction.md
	cd reproduction/figures && for name in *.png; do cp $$name ../../docs/images/reproduction-$$name; done

# Before every commit: lint, types and the core of the tests; what is marked slow is left out.
check: $(VENV)/.installed-test
	$(STATIC)
	$(PYTEST) -m "not slow"

# Before every merge: everything.
test: $(VENV)/.installed-test
	$(STATIC)
	$(PYTEST)

# Repairs what it can.
lint: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

# rkdl beside its peers, which live in an environment of their own.
bench: .venv-bench/.installed
	.venv-bench/bin/python -m benchmarks --out results/benchmarks $(CASES)

# The documentation site, into docs/_build/html; every warning is an error.
docs: .venv-docs/.installed
	.venv-docs/bin/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	.venv-docs/bin/python docs/check_site.py docs/_build/html

# Opens every page of the site in headless Chromium, which must be installed.
browse: docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check playwright
	.venv-docs/bin/python docs/browse_site.py docs/_build/html

# Wheel and sdist in dist/: checked, installed into an empty environment, README's snippets run there.
dist: .venv-dist/.installed
	rm -rf dist
	.venv-dist/bin/python -m build --outdir dist
	.venv-dist/bin/python -m twine check --strict dist/*
	.venv-dist/bin/python tools/check_dist.py dist

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[paper]"
	touch $@

$(VENV)/.installed-test: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
ifdef PEERS
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt \
		|| echo "The peers could not be installed: the benchmark is tested without them."
endif
	touch $@

.venv-bench/.installed: benchmarks/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -e . -r benchmarks/requirements.txt
	touch $@

.venv-docs/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@

.venv-dist/.installed:
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet --disable-pip-version-check build twine
	touch $@

clean:
	rm -rf $(VENV) .venv-bench .venv-docs .venv-dist dist docs/_build docs/gallery docs/generated reproduction results .pytest_cache .mypy_cache .ruff_cache
