# What people and CI run. Everything a target needs beyond Python and git, it sets up itself.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/ready: pyproject.toml scripts/make-venv.sh
	sh scripts/make-venv.sh $(PYTHON) $(VENV)

demo: $(VENV)/ready ## capture, build, verify and diff a real environment, then seed faults
	$(VENV)/bin/python -m scripts.demo

images: $(VENV)/ready ## build and verify the images of images/ that this machine has room for
	$(VENV)/bin/python -m scripts.images

test: $(VENV)/ready ## lint, types and the unit, torch and engine tests; needs at most 30 minutes
	$(VENV)/bin/python -m scripts.test lint unit process torch engine

test-full: $(VENV)/ready ## everything, real CUDA wheels included
	$(VENV)/bin/python -m scripts.test lint unit process torch engine faults cuda-image gpu

unit: $(VENV)/ready ## lint, types and the tests that need no process and no network
	$(VENV)/bin/python -m scripts.test lint unit

bench: $(VENV)/ready ## speed, as ratios measured in one run
	$(VENV)/bin/python -m benchmarks.speed
	$(VENV)/bin/python -m benchmarks.files --only ownership
	$(VENV)/bin/python -m benchmarks.files --only locks
	$(VENV)/bin/python -m benchmarks.memory

bench-full: bench ## also builds, on an engine, and the hashing of a CUDA environment
	$(VENV)/bin/python -m benchmarks.files --only check
	$(VENV)/bin/python -m benchmarks.image

.PHONY: help demo images test test-full unit bench bench-full
