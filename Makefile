# Everything that is not pinned in go.mod is pinned here.
golangci_lint := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.6.2

.PHONY: build run test test-fast check bench fuzz clean

# go.work has both modules: this one, and bench/, with what only benchmarks need.
packages := ./... ./bench/...

plugin_sources := go.mod go.sum main.go \
	$(filter-out %_test.go,$(wildcard $(addsuffix /*.go,filter window sharedata config internal/proxywasm internal/node internal/counter internal/wire)))

# The collector that was Go's before 1.26 is 45 KB smaller. A Go that no longer has it builds the plugin with its own.
plugin_build = GOOS=wasip1 GOARCH=wasm GOEXPERIMENT=$(shell GOEXPERIMENT=nogreenteagc go env GOEXPERIMENT 2>/dev/null) \
	go build -trimpath -buildmode=c-shared

build: dist/weir.wasm dist/weir

# What is shipped has the versions of its own go.mod, whatever bench/ asks for.
dist/weir.wasm dist/weir-names.wasm dist/weir: export GOWORK = off

dist/weir.wasm: $(plugin_sources)
	$(plugin_build) -ldflags='-s -w' -o $@ .

# With names, for bench/v8/profile.js and bench/v8/size.js.
dist/weir-names.wasm: $(plugin_sources)
	$(plugin_build) -o $@ .

dist/empty-names.wasm: bench/go.mod bench/v8/empty/empty.go
	$(plugin_build) -o $@ ./bench/v8/empty

dist/gofloor.wasm: go.mod bench/go.mod bench/v8/gofloor/gofloor.go $(wildcard internal/proxywasm/*.go)
	$(plugin_build) -ldflags='-s -w' -o $@ ./bench/v8/gofloor

# The command is always handed to go, which knows best what has changed.
.PHONY: dist/weir
dist/weir:
	go build -trimpath -o $@ ./cmd/weir

# ARGS are flags of weir run, such as ARGS='--store redis://127.0.0.1:6379'.
run: build
	dist/weir run $(ARGS)

test: build
	./scripts/test-dependencies
	go test -race -timeout 20m $(packages)

# What a change shows in two minutes: no Envoy, no race detector, of the stores in e2e only the memory.
test-fast: build
	./scripts/test-dependencies
	go test -short $(packages)

check:
	test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet $(packages)
	GOOS=wasip1 GOARCH=wasm go vet . ./internal/proxywasm ./bench/v8/...
	go run $(golangci_lint) run $(packages)
	go mod verify
	GOWORK=off go mod tidy -diff
	GOWORK=off go -C bench mod tidy -diff

# What counts comes first: what a request costs in Envoy. LONG=1 also drives ten million streams, and measures what a backend takes in.
bench: build dist/gofloor.wasm bench/v8/node_modules
	./scripts/test-dependencies bench
	go run ./bench/envoy
	go test -run '^$$' -bench . -benchmem $(packages)
	node --test bench/v8/host.test.js
	node bench/v8/run.js $(if $(LONG),--long 10)
	go run ./bench/native
	$(if $(LONG),go run ./bench/backend)

bench/v8/node_modules: bench/v8/package-lock.json
	@command -v npm >/dev/null || { echo "make bench needs Node 20 or later, with npm: https://nodejs.org"; exit 1; }
	npm ci --prefix bench/v8
	touch $@

clean:
	rm -rf dist
