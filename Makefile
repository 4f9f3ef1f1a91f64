# DreamCore. `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

export CGO_ENABLED := 0
# One folder for what is expensive to make: runsc, the sandbox image.
export DREAMCORE_CACHE ?= $(HOME)/.cache/dreamcore
PROMPT ?= a game where a cat flies through the sky
ONCE ?=
GOBUILD := go build -trimpath -ldflags="-s -w"
GVISOR := $(shell go list -m -f '{{.Version}}' gvisor.dev/gvisor 2>/dev/null)
RUNSC := $(DREAMCORE_CACHE)/runsc/$(GVISOR)/runsc
BIN := bin/dreamcore
PAYLOAD := internal/payload/bin

help: ## list the commands
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

demo: setup ## make a game from PROMPT="…" and play it (ONCE=1: stop after fetching it once)
	@$(BIN) make $(if $(ONCE),--once) -- "$$PROMPT"
demo: export PROMPT := $(PROMPT)

serve: setup ## run the service: app and games
	$(BIN) serve

setup: build image ## everything that demo, serve and test need

build: payload ## bin/dreamcore, with sandboxd, toolkit and runsc inside
	@mkdir -p bin
	$(GOBUILD) -o $(BIN) ./cmd/dreamcore

payload: $(RUNSC) ## the programs that are embedded in bin/dreamcore
	@mkdir -p $(PAYLOAD)
	$(GOBUILD) -o $(PAYLOAD)/sandboxd ./cmd/sandboxd
	$(GOBUILD) -o $(PAYLOAD)/toolkit ./cmd/toolkit
	@cmp -s $(RUNSC) $(PAYLOAD)/runsc || cp $(RUNSC) $(PAYLOAD)/runsc

# cgo must be off: a cgo build of runsc fails at boot.
$(RUNSC):
	@echo "building runsc $(GVISOR): about a minute, once"
	@mkdir -p $(@D)
	$(GOBUILD) -o $@.tmp gvisor.dev/gvisor/runsc
	@mv $@.tmp $@

image: build ## build the sandbox image, unless the locked one is there
	$(BIN) image build --lock image/lock.json

# What the tests need on the host (the image has its own): program=package.
TESTDEPS := chromium-headless-shell=chromium-headless-shell npm=npm
# What boots many sandboxes, drives real clients or whole binaries needs the
# machine for itself: one package after the other, when the rest is done.
ALONE := /test/(soak|peer|wire|command|fuzz)$$
test: lint setup testdeps ## run every test; a skipped one is a failure
	@packages=$$(go list ./...); run() { timeout "$$1" go test -json -count=1 -timeout "$$1" "$${@:2}" || true; }; \
	{ run 20m $$(grep -vE '/test/e2e$$|$(ALONE)' <<<"$$packages"); \
	  run 15m -p 1 $$(grep -E '$(ALONE)' <<<"$$packages"); \
	  run 22m ./test/e2e; } | go run ./test/summary

testdeps:
	@need=; for d in $(TESTDEPS); do command -v "$${d%=*}" >/dev/null || need="$$need $${d#*=}"; done; \
	if [ -n "$$need" ]; then \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$need; \
	  else echo "the tests need packages, run: sudo apt-get install$$need"; exit 1; fi; fi

test-e2b: build ## the sandbox suite at the real E2B; needs E2B_API_KEY
	@test -n "$$E2B_API_KEY" || { echo "set E2B_API_KEY to your key of E2B, and E2B_TEMPLATE to the template's id (optional: E2B_DOMAIN, E2B_PLAN=free|paid, E2B_PROXY_ADDRESS); then run the same command"; exit 1; }
	go test -tags e2b -count=1 -timeout 60m ./test/cloud

test-long: setup testdeps ## hours: soaks with kills, an hour of fuzzing; resumable; report in docs/reports/long.md
	go run ./test/long

lint: ## formatters and linters
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt: $$out"; exit 1; }
	go vet ./...
	go vet -tags e2b,long ./test/...
	go tool -modfile=tools/go.mod staticcheck ./...

bench: setup benchdeps ## each speed beside its floor in the same run
	go test -run '^$$' -bench . -benchtime 20x -timeout 40m ./internal/engine
	go test -run '^$$' -bench . -benchtime 20x ./internal/keyproxy
	go test -run '^$$' -bench . -benchtime 20x ./internal/keyproxy/control
	go test -run '^$$' -bench . -benchtime 3x -timeout 30m ./test/e2e

# What the engine is measured beside; without them the table lacks their rows.
BENCHDEPS := runc bubblewrap
benchdeps:
	@if ! command -v runc >/dev/null || ! command -v bwrap >/dev/null; then \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(BENCHDEPS); \
	  else echo "to measure beside others too: sudo apt-get install --no-install-recommends $(BENCHDEPS)"; fi; fi

clean: ## remove what was built, but not the cache
	rm -rf bin
	find $(PAYLOAD) -type f ! -name .gitkeep -delete

distclean: clean ## remove the cache too
	rm -rf $(DREAMCORE_CACHE)

.PHONY: help demo serve setup build payload image test testdeps test-e2b test-long lint bench benchdeps clean distclean
