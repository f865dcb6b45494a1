# The two commands of the README are `make demo` and `make test`.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
SEEDS   ?= 100
SOAK    ?= 1000
IMAGE   ?= tugline
LDFLAGS  = -s -w -X main.version=$(VERSION)
export CGO_ENABLED = 0
# What is compiled for the programs and what is compiled for the tests is the same then, and is compiled once.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -trimpath)

# `make check` vets all; nobody debugs the tests' programs, and linking what a debugger reads takes time.
TEST = $(GO) test -vet=off -ldflags='-s -w' -shuffle=on
# Packages by themselves, and those of them that start nothing and share nothing: test/arch holds the list to that, and
# the packages that share what these make are raced.
UNIT = $(shell $(GO) list ./... | grep -v -e /test/e2e -e /test/arch -e /test/bench -e /test/cluster -e /test/fault)
PURE = shared/fleet hub/circuit hub/retry hub/state hub/sched hub/rollout hub/gate

DASH    = hub/web/dashboard

.PHONY: help build dashboard test-dashboard demo test check unit race cluster e2e fault test-harness installers soak bench bench-cluster cross packages formula image clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/tugline for this machine, with the dashboard as `make dashboard` left it
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/tugline ./cmd/tugline

dashboard: $(DASH)/dist/index.html ## the operator's page, which `make build` puts into the program; Node 20.19 or newer

$(DASH)/node_modules/.package-lock.json: $(DASH)/package-lock.json
	cd $(DASH) && npm ci --no-audit --no-fund
	@touch $@

$(DASH)/dist/index.html: $(DASH)/node_modules/.package-lock.json $(DASH)/index.html $(DASH)/vite.config.ts $(DASH)/tsconfig.json $(shell find $(DASH)/src $(DASH)/public $(DASH)/scripts -type f)
	cd $(DASH) && npm run build

demo: build ## a hub, a runner and one job, all in a temporary directory; HARNESS=codex|claude|opencode uses that agent and your account
	@test/demo/run.sh

test: check unit e2e ## everything that passes without a network or an account

check: ## formatting, vet, the shape of the tree
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags harness,soak,fault,installers,bench ./cmd/tugline ./hub ./consensus ./test/...
	$(GO) test ./test/arch

unit: ## packages by themselves; more tests at once than there are cores, because many wait
	$(TEST) -parallel 4 $(UNIT)

race: ## packages by themselves under the race detector, but for those where nothing can race; long runs by chance are shorter there
	CGO_ENABLED=1 $(TEST) -race -short -timeout 15m $(filter-out $(addprefix %/,$(PURE)),$(UNIT))
	CGO_ENABLED=1 $(GO) test -vet=off -race -count=1 ./test/cluster -run TestCluster -seeds 2 -for 2m

cluster: ## three hubs, fifty runners and faults by chance in virtual time; SEEDS says how many worlds
	$(GO) test -count=1 -timeout 9m ./test/cluster -seeds $(SEEDS)

e2e: ## real binaries, real git, kill -9
	$(GO) test -count=1 -timeout 15m -parallel 6 ./test/e2e

test-harness: ## the real agent CLIs from the npm registry, against a scripted model server on loopback
	test/harness/install.sh
	$(GO) test -count=1 -timeout 20m -parallel 4 -tags harness ./test/harness

test-dashboard: dashboard build ## the dashboard: its logic, its size, and a real browser against real hubs; root, Debian's Chromium
	cd $(DASH) && npm run lint && npm test
	$(DASH)/e2e/packages.sh
	cd $(DASH) && node e2e/run.mjs

fault: ## real hubs and runners in network namespaces: cut off, killed, paused, wiped, filled up, slowed down, lied to; root
	test/fault/packages.sh
	$(GO) test -count=1 -timeout 30m -parallel 6 ./test/fault

installers: ## the image and the compose file under a Docker daemon, the service under systemd, nginx and HAProxy; root, Debian's packages
	test/installers/packages.sh
	$(GO) test -count=1 -timeout 12m -tags installers ./test/installers

soak: ## the long forms of what CI samples; SOAK says how many worlds of the cluster
	$(GO) test -count=1 -timeout 4h ./test/cluster -run TestCluster -first 101 -seeds $(SOAK)
	$(GO) test -count=1 -timeout 60m ./runner/worktree -run TestNothingIsEverLost -rapid.checks=300
	$(GO) test -count=1 -timeout 60m -tags soak -run Soak ./test/e2e
	test/fault/packages.sh
	$(GO) test -count=1 -timeout 60m -tags soak -parallel 3 -run Soak ./test/fault
	test/installers/packages.sh soak
	$(GO) test -count=1 -timeout 30m -tags installers,soak -run Soak ./test/installers
	$(GO) test -count=1 ./installers -sparse 1
	test/harness/install.sh
	$(GO) test -count=1 -timeout 60m -parallel 4 -tags harness,soak ./test/harness

bench: ## figures, printed beside the last committed ones
	$(GO) test -count=1 -timeout 30m -tags bench -run TestBench -v ./test/bench

bench-cluster: ## the same of three nodes, and of a hub with 10,000 runners
	$(GO) test -count=1 -timeout 60m -tags bench -run TestCluster -v ./test/bench

cross: ## every platform that is shipped
	@for p in darwin/arm64 darwin/amd64 linux/arm64 linux/amd64; do \
	  echo "  $$p"; GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -ldflags '$(LDFLAGS)' -o bin/tugline-$${p%/*}-$${p#*/} ./cmd/tugline || exit 1; done

packages: cross ## .deb and .rpm for linux/amd64 and linux/arm64, in bin/packages
	installers/packages/build.sh '$(VERSION)' bin/tugline-linux-%s bin/packages deb/amd64 deb/arm64 rpm/amd64 rpm/arm64

formula: cross ## bin/tugline.rb, for Homebrew; URL says below which address the release's programs will be
	$(GO) run ./installers/packages formula '$(VERSION)' '$(URL)' bin >bin/tugline.rb

image: ## the hub's image, from nothing but the binary; IMAGE names it
	@mkdir -p bin/image/data
	GOOS=linux $(GO) build -tags image -ldflags '$(LDFLAGS)' -o bin/image/tugline ./cmd/tugline
	docker build -q -f installers/hub/Dockerfile -t $(IMAGE) bin/image

clean: ## what make made
	rm -rf bin
