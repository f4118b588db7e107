# Two commands: `make book` and `make test`. Everything is installed into .venv, nothing elsewhere.
# Windows and those without make: the same lines stand in README.md.

.DEFAULT_GOAL := help
PY   := .venv/bin/python
PORT ?= 8000
# More options of JupyterLab, such as: make lab LAB='--no-browser --port 9000'
LAB  ?=
# More options of the recording, such as: make record RECORD='--only matmul_sizes --out mine.json'
RECORD ?=
# A process for each core, up to eight; one after the other: make test SIDE_BY_SIDE=. What measures runs alone in any case, after the
# rest: chapters, and the tests of ALONE.
SIDE_BY_SIDE ?= -n auto --maxprocesses 8
ALONE := tests/measuring tests/experiments tests/book/test_executed.py
export JUPYTER_PREFER_ENV_PATH := 1
export PYDEVD_DISABLE_FILE_VALIDATION := 1

.PHONY: help book serve lab test test-fast html lint zoo record gpu mutations notebooks address picture lock clean

help:               ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 20

book: html          ## Install, execute every chapter, build the book, say where it is
	@$(PY) -c "from pathlib import Path; p = Path('_build/html/index.html').resolve(); print(f'\nThe book is built: {p}\nOpen {p.as_uri()}\nor run: make serve')"

serve: html         ## Serve the book on this machine and open it in the browser
	@echo "http://127.0.0.1:$(PORT)/ (Ctrl-C ends it)"
	@(sleep 1; $(PY) -m webbrowser -t http://127.0.0.1:$(PORT)/ >/dev/null 2>&1) &
	@$(PY) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

lab: .venv/lab      ## Open the chapters in JupyterLab, with .venv as their kernel
	@$(PY) -m jupyterlab --LabApp.default_url=/lab/tree/book/index.ipynb $(LAB)

# The page "How this book is tested" is made from the report of the run, so the book is built after the tests, and once
# more, for that page alone, after the browser tests.
test: .venv/ready   ## Install and run every test: code, chapters, then the built book in a browser
	$(PY) -m pytest $(SIDE_BY_SIDE) -m "not browser" --report=checks tests flopkit $(ALONE:%=--ignore=%)
	$(PY) -m pytest -m "not browser" --report=chapters book $(ALONE)
	@$(MAKE) --no-print-directory html
	$(PY) -m pytest $(SIDE_BY_SIDE) -m browser --report=browser tests
	@$(MAKE) --no-print-directory html

test-fast: .venv/ready  ## Three minutes on two cores: a sample of the tests of the code, the same each time, without whole networks, figures, chapters and pages
	$(PY) -m pytest $(SIDE_BY_SIDE) --fast -m "not browser and not slow" tests flopkit

html: .venv/ready   ## Build the book (after the first time: only what changed)
	@echo "Executing the chapters and building the book ..."
	@.venv/bin/jupyter-book build -W -n --keep-going --quiet . > /dev/null    # what is wrong goes to stderr

lint: .venv/ready   ## Style, form, types, spelling
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m codespell_lib flopkit book tests tools *.md

# The libraries go into a folder of their own, without what they would bring along: the tests need no more than tools/zoo.txt names.
zoo: _build/zoo/ready  ## Count the models of timm, diffusers, PEFT, PyG, ultralytics, torchvision and transformers (a quarter of an hour)
	@PYTHONPATH=$(CURDIR)/_build/zoo $(PY) -c "import timm, diffusers, peft, torch_geometric.nn"
	PYTHONPATH=$(CURDIR)/_build/zoo HF_HUB_OFFLINE=1 YOLO_OFFLINE=true YOLO_CONFIG_DIR=$(CURDIR)/_build/zoo \
	  $(PY) -m pytest -m zoo tests/zoo

# Each case is kept as soon as it is measured: end it when you like, the next run goes on from there.
record: .venv/ready ## Measure this machine, its GPU where there is one, into the file from which the book shows your numbers
	$(PY) -m flopkit record $(RECORD)

# The hardware's counters come last: many machines forbid them, and all else is done by then.
gpu: .venv/ready    ## On a CUDA GPU: the tests of the clock, every experiment into a recording, counts beside the GPU's own counters (.venv needs a torch with CUDA)
	@$(PY) -c 'import sys, torch; sys.exit(not torch.cuda.is_available() and f"torch {torch.__version__} finds no CUDA device: see https://pytorch.org/get-started")'
	$(PY) -m pytest -q tests/measuring tests/experiments tests/recordings
	$(PY) -m flopkit record --device cuda $(RECORD)
	$(PY) -m flopkit counters --device cuda

mutations: .venv/ready  ## Change each number of a formula in turn, and name the changes that no test notices (an hour or more)
	$(PY) tools/mutations.py

notebooks: .venv/ready  ## Bring the chapters into the stored form (no outputs)
	$(PY) tools/notebooks.py

address: .venv/ready  ## Write the repository's address everywhere: make address ADDRESS=https://…
	$(PY) tools/address.py $(ADDRESS)

picture: html       ## Take the README's picture from the built book
	$(PY) tools/picture.py

# torch and torchvision are moved by hand, together; everything else takes the newest version that pyproject.toml allows and
# that Python 3.11 can have, from its first release on (soupsieve 3 wants 3.11.5). CUDA's libraries follow from torch and are not pinned.
lock: .venv/ready   ## Write constraints.txt anew from the newest versions that fit (needs Python 3.11)
	$(PY) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "make lock needs a .venv of the oldest Python that is served, 3.11")'
	rm -rf _build/lock && $(PY) -m venv _build/lock
	_build/lock/bin/python -m pip install -q 'pip>=25'
	_build/lock/bin/python -m pip install -q -e '.[book,test,peers,lab]' 'soupsieve<3' $$(grep '^torch==' constraints.txt)
	_build/lock/bin/python -m pip install -q --no-deps $$(grep '^torchvision==' constraints.txt) ultralytics-thop
	(sed '/^[^#]/,$$d' constraints.txt; _build/lock/bin/python -m pip freeze -q --exclude-editable | sed 's/+cpu//' | \
	  grep -v -E '^(cuda-|nvidia-|triton=|setuptools=|wheel=)') > _build/lock.txt
	mv _build/lock.txt constraints.txt && rm -rf _build/lock

clean:              ## Remove all that was built; .venv stays
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A pip as old as Debian 12's cannot read what some packages say about themselves, hence the first of the three lines.
# torchvision stands in a line of its own: its wheel asks for the torch it was built with, CUDA and all. So does ultralytics-thop,
# which has the same module name as thop: it goes into a folder of its own.
.venv/ready: pyproject.toml constraints.txt tools/torchvision_beside_cpu_torch.py
	@python=; for p in "$(PYTHON)" python3 python3.14 python3.13 python3.12 python3.11 python; do \
	  if test -z "$$python" && command -v "$$p" >/dev/null && \
	     "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$p; fi; done; \
	if test -z "$$python"; then \
	  echo "Python 3.11 or newer is needed; python3 here is: $$(python3 --version 2>&1). Name another one with: make PYTHON=/path/to/python3.12" >&2; exit 1; fi; \
	test -x $(PY) || { echo "Making .venv with $$($$python --version) ..."; "$$python" -m venv .venv || \
	  { rm -rf .venv; echo "Python's venv is missing here. On Debian and Ubuntu: sudo apt-get install python3-venv" >&2; exit 1; }; }
	@echo "Installing into .venv (a few minutes the first time) ..."
	@$(PY) -m pip install -q --disable-pip-version-check 'pip>=25'
	@$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[book,test,peers]'
	@$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt --no-deps torchvision
	@$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt --no-deps --upgrade \
	  --target "$$($(PY) -m flopkit.peers.installed)" ultralytics-thop
	@$(PY) tools/torchvision_beside_cpu_torch.py
	@touch .venv/ready

_build/zoo/ready: .venv/ready tools/zoo.txt
	@echo "Installing the libraries of tools/zoo.txt into _build/zoo ..."
	@$(PY) -m pip install -q --disable-pip-version-check --no-deps --upgrade --target _build/zoo -r tools/zoo.txt
	@touch $@

.venv/lab: .venv/ready
	@echo "Installing JupyterLab into .venv ..."
	@$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[lab]'
	@touch .venv/lab
