# Everything that is not pinned in go.mod is pinned here.
golangci_lint := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.6.2
actionlint := github.com/rhysd/actionlint/cmd/actionlint@v1.7.7

# 2.17 needs a module that not every Go module proxy serves.
goreleaser := github.com/goreleaser/goreleaser/v2@v2.16.0
cyclonedx := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

.PHONY: help release release-twice images module build controller run playground screenshots test test-fast test-nightly check fuzz mutants bench docs clean

# Without the folder's name in what is compiled, builds and tests take packages of each other, and those of another clone.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath)

# go.work has all modules: this one, bench/, with what only benchmarks need, controller/, with what Kubernetes needs, and
# release/, with what only releases need.
packages := ./... $(others)
others := ./bench/... ./controller/... ./release/...

# What has goroutines is tested with the race detector; it makes the rest five times as slow, and finds nothing there.
raced := ./cmd/... ./internal/backend ./internal/calendar ./internal/host ./internal/listen ./internal/live ./internal/panics ./internal/ratelimitservice ./internal/server ./internal/share ./internal/simulate/... \
	./internal/store/... ./internal/trust/... ./internal/ui ./internal/warn ./playground ./ratelimit/... ./sharedata

# The files that a package is compiled from, as go knows them. A list by hand lacked some.
sources_of = go.mod go.sum $(shell GOOS=wasip1 GOARCH=wasm go list -deps -f '{{if .Module}}{{if .Module.Main}}{{$$d := .Dir}}{{range .GoFiles}}{{$$d}}/{{.}} {{end}}{{range .SFiles}}{{$$d}}/{{.}} {{end}}{{end}}{{end}}' $(1))

# The collector that was Go's before 1.26 is 45 KB smaller. A Go that no longer has it builds the plugin with its own.
plugin_build = GOOS=wasip1 GOARCH=wasm GOEXPERIMENT=$(shell GOEXPERIMENT=nogreenteagc go env GOEXPERIMENT 2>/dev/null) \
	go build -trimpath -buildmode=c-shared -ldflags=-w

build: dist/weir.wasm dist/weir ## the plugin and the command, in dist/

controller: ## what weir controller starts, dist/weir-controller
	GOWORK=off go -C controller build -trimpath -o ../dist/weir-controller .

include native/Makefile

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

page_modules := playground/site/engine.wasm playground/site/pair.wasm

# What is shipped has the versions of its own go.mod, whatever bench/ asks for.
dist/weir-go.wasm dist/weir $(page_modules): export GOWORK = off

# What Go makes of the plugin, what is shipped, and the same with names, for bench/size.
dist/weir-go.wasm: $(call sources_of,.)
	$(plugin_build) -o $@ .

straighten = $(filter-out %_test.go,$(wildcard scripts/straighten/*.go))

dist/%.wasm: dist/%-go.wasm $(straighten)
	go run ./scripts/straighten $< $@

dist/%-names.wasm: dist/%-go.wasm $(straighten)
	go run ./scripts/straighten -names $< $@

dist/empty-go.wasm: bench/go.mod bench/size/empty/empty.go
	$(plugin_build) -o $@ ./bench/size/empty

# The command is always handed to go, which knows best what has changed.
.PHONY: dist/weir
dist/weir: $(page_modules)
	go build -trimpath -ldflags='-X main.commit=$(shell git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null)' -o $@ ./cmd/weir

# The command embeds what is in playground/site.
playground/site/engine.wasm: $(call sources_of,./playground/engine)
	$(plugin_build) -o $@ ./playground/engine

playground/site/pair.wasm: $(call sources_of,./playground/pair/engine)
	$(plugin_build) -o $@ ./playground/pair/engine

playground: $(page_modules) ## the playground as static files, for any web server, in dist/playground
	rm -rf dist/playground
	mkdir -p dist
	cp -R playground/site dist/playground

screenshots: build ## the pictures of the playground and the live view, into docs/pictures
	./scripts/test-dependencies
	go test -run Screenshots ./playground/browser -args -pictures "$(CURDIR)/docs/pictures"

run: build ## the playground, and proxies on this machine; ARGS are flags, such as ARGS='--store redis://127.0.0.1:6379'
	dist/weir run $(ARGS)

test: build ## all tests, on real Envoys and stores; installs what they need and this machine lacks
	./scripts/test-dependencies
	$(MAKE) --no-print-directory test-raced test-rest
	$(if $(WEIR_NIGHTLY),WEIR_PROXIES=native go test -timeout 1h ./e2e)
	$(if $(WEIR_NIGHTLY),scripts/valkey && PATH="$(CURDIR)/dist/valkey:$$PATH" go test -timeout 1h ./internal/store/redis)

# The collector would take a twentieth of the tests' time at its default of 100.
test test-fast test-nightly: export GOGC = 400

# Three packages at once, and four in test-fast, as these wait for stores, Envoys and browsers. The longest
# packages come first.
.PHONY: test-raced test-rest
test-raced:
	WEIR_PROXIES=wazero go test -p 3 -race -timeout $(if $(WEIR_NIGHTLY),2h,1h) ./e2e ./internal/store/redis ./internal/store/postgres $(raced)
test-rest:
	WEIR_PROXIES=envoy go test -p 3 -timeout $(if $(WEIR_NIGHTLY),2h,1h) ./e2e ./playground/browser ./internal/engine ./docs $$(go list ./... | grep -vxF "$$(go list $(raced))")
	go test -p 3 -count=1 -timeout $(if $(WEIR_NIGHTLY),2h,1h) $(others) # go does not see what changes outside of a module
	GOWORK=off go -C release/gateway/cluster test -count=1 .

test-nightly: export WEIR_NIGHTLY = 1
test-nightly: ## the same tests at full length
	./scripts/test-dependencies
	$(MAKE) --no-print-directory native test

# What needs Envoy, a browser or a build of its own, and benchmarks.
slow := ./bench/... ./envoy ./monitoring ./native/... ./playground/browser ./scripts/mutants

test-fast: build ## what a change shows in two minutes: no Envoy, no browser, no race detector, of the stores in e2e only the memory
	./scripts/test-dependencies
	go test -p 4 -short $$(go list ./... | grep -vxF "$$(go list $(slow))")

check: ## formats, vets, lints code and workflows, and verifies the modules
	test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet $(packages)
	GOOS=wasip1 GOARCH=wasm go vet . ./internal/proxywasm ./internal/usage ./playground/engine ./playground/pair/engine ./bench/size/empty
	go run $(golangci_lint) run --allow-serial-runners $(packages)
	go run $(actionlint) .github/workflows/*.yml
	go mod verify
	GOWORK=off go mod tidy -diff
	GOWORK=off go -C bench mod tidy -diff
	GOWORK=off go -C controller mod tidy -diff
	GOWORK=off go -C release mod tidy -diff
	GOWORK=off go -C release/gateway/cluster mod tidy -diff

fuzz: ## each fuzz target for TIME=10s
	for file in $$(grep -rl --include='*_test.go' --exclude-dir=dist --exclude-dir=node_modules '^func Fuzz' .); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\).*/\1/p' $$file); do \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(or $(TIME),10s) ./$$(dirname $$file) || exit; \
		done; \
	done

mutants: ## N=100 changes of what decides, chosen by SEED=1: tests have to notice each
	go run ./scripts/mutants -seed $(or $(SEED),1) -n $(or $(N),100) ./window ./sharedata ./internal/counter

bench: build ## all benchmarks and studies, in an hour and a half
	./scripts/test-dependencies bench
	$(MAKE) --no-print-directory native
	go run ./bench/peers
	go run ./bench/cold
	go test -run '^$$' -bench . -benchmem $(packages)
	go run ./bench/overshoot
	go run ./bench/fleet

docs: dist/docs-env/installed dist/docs-env/package/dist/mermaid.min.js dist/docs-env/package/shim/index.js $(page_modules) ## the pages as a site with search, in dist/docs; needs Python 3 and npm
	mkdir -p dist/site-pages
	dist/docs-env/bin/mkdocs build --strict --quiet -f scripts/site/mkdocs.yml

dist/docs-env/installed: scripts/site/requirements.txt
	python3 -m venv dist/docs-env
	dist/docs-env/bin/pip install --quiet -r $<
	touch $@

# The site takes no file from elsewhere when it is read.
dist/docs-env/package/dist/mermaid.min.js: dist/docs-env/installed
	npm pack --silent mermaid@11.12.1 --pack-destination dist/docs-env
	tar -xzmf dist/docs-env/mermaid-11.12.1.tgz -C dist/docs-env package/dist/mermaid.min.js

# So that the search works in a folder, where a browser runs no worker.
dist/docs-env/package/shim/index.js: dist/docs-env/installed
	npm pack --silent iframe-worker@1.0.4 --pack-destination dist/docs-env
	tar -xzmf dist/docs-env/iframe-worker-1.0.4.tgz -C dist/docs-env package/shim/index.js

# goreleaser asks for the address of a remote, which a clone need not have.
no_remote = GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=.

release: export GOFLAGS = -buildvcs=false -trimpath
release: ## the files of VERSION=v0.1.0 in dist/release: archives, the plugin, checksums and SBOMs; publishes nothing
	@echo '$(VERSION)' | grep -Eq '^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$$' || { echo "make release needs VERSION=v0.1.0"; exit 1; }
	@git diff --quiet HEAD || { echo "make release builds a commit: there are changes that are not committed"; exit 1; }
	rm -rf dist/staged dist/weir-go.wasm dist/weir.wasm dist/libweir.so dist/native $(page_modules)
	$(MAKE) --no-print-directory dist/weir.wasm $(page_modules)
	mkdir -p dist/staged
	cp dist/weir.wasm deploy/compose.yaml envoy/envoy.yaml dist/staged
	sed -E 's|(images\.example/weir[-a-z]*):1$$|\1:$(VERSION)|' envoy/istio.yaml >dist/staged/istio.yaml
	sed 's|dist/weir.wasm|weir.wasm|' envoy/quickstart.yaml >dist/staged/quickstart.yaml
	GOWORK=off go -C release run . -chart "$(CURDIR)/charts/weir" -tag $(VERSION) -files "$(CURDIR)/dist/staged"
	@if [ "$$(wasm2c --version 2>/dev/null)" = 1.0.32 ]; then \
		$(MAKE) --no-print-directory dist/libweir.so && cp dist/libweir.so dist/staged/libweir_linux_$$(go env GOARCH).so; \
	else echo "without libweir.so, which needs wasm2c 1.0.32: apt-get install wabt"; fi
	$(if $(shell git remote),,$(no_remote)) GORELEASER_CURRENT_TAG=$(VERSION) CYCLONEDX=$(cyclonedx) go run $(goreleaser) release --clean --skip=publish,announce,validate
	cp dist/staged/* dist/release

# In a clone, whose folder has another name.
release-twice: ## fails unless VERSION's release, v0.0.0 by default, is the same bytes when it is built again elsewhere
	rm -rf dist/again
	git clone --quiet . dist/again
	$(MAKE) release VERSION=$(or $(VERSION),v0.0.0)
	$(MAKE) -C dist/again release VERSION=$(or $(VERSION),v0.0.0)
	diff dist/release/checksums.txt dist/again/dist/release/checksums.txt

module: ## moves all to the path MODULE=example.com/owner/weir: go.mod, imports, settings and pages
	go run ./scripts/module "$(MODULE)"
	gofmt -l -w .

images: ## images of what make release has made, pushed as IMAGE=registry.example/weir and IMAGE-plugin, with the tag VERSION
	GOWORK=off go -C release run . -files "$(CURDIR)/dist/release" -image "$(IMAGE)" -tag "$(VERSION)"

clean: ## removes dist/, Envoys included
	rm -rf dist $(page_modules)
