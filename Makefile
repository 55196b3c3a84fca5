# ck: build, test, fuzz, bench, lint, man pages, install. Everything is plain go; this file only remembers the commands.

PREFIX ?= /usr/local
COMMIT ?= $(shell git describe --always --abbrev=12 --exclude '*' --dirty=+changes 2>/dev/null)
SHARE = $(DESTDIR)$(PREFIX)/share

.PHONY: build test testdata test-numa fuzz bench lint man install

build:
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X ck/internal/cli.Commit=$(COMMIT)" -o bin/ ./cmd/...

test:
	go test ./...

# testdata, which travels with the repository, packed anew from ../shared/data after a change of internal/testkit/table.go.
testdata:
	CK_TEST_REQUIRE=data go test -count=1 -run '^TestTestdata' ./internal/testkit -update

# Topologies, quotas and limits in virtual machines of ../shared/tools/numavm, which installs QEMU and a kernel at its first run.
test-numa:
	CK_TEST_NUMA=1 go test -count=1 -v -parallel 2 -timeout 30m ./test/numa

# Go's fuzzer on every target whose name has FUZZ in it for FUZZTIME each, which is chance; tests and CI run the corpus and a fixed sequence of mutations. Minimizing
# what is merely new is bounded: it left 4 to 800 executions in 45 s. The fuzzer sometimes calls its own deadline a failure
# (golang/go#48591); a finding always has a failing input.
FUZZTIME ?= 1m
FUZZ ?=
fuzz:
	@grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | grep '$(FUZZ)' | sort | sed 's/:func / /' | while read -r file f; do \
		if ! out=$$(go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$(dirname $$file) 2>&1 </dev/null); then \
			case $$out in \
			*"Failing input"*) echo "$$out"; exit 1;; \
			*"context deadline exceeded"*) ;; \
			*) echo "$$out"; exit 1;; \
			esac; \
		fi; \
		echo "$$f: $$(echo "$$out" | grep execs | tail -1)"; \
	done

bench:
	go test -run '^$$' -bench . ./asm/... ./internal/kernel ./test

lint:
	gofmt -l . | (! grep .)
	go vet ./...
	go vet -tags noasm ./...
	GOARCH=arm64 go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

# Man pages and completions are committed; this makes them again after a change of flags.
man:
	go generate ./cmd/...

# The text that the demo model learns from (docs/demo-model.md), into the folder DEMO. Sampling takes half an hour of two cores.
DEMO ?= demo
.PHONY: demo-text
demo-text:
	mkdir -p $(DEMO)
	test -f $(DEMO)/samples.txt || { go run ./internal/demotext/make sample -model ../shared/data/models/stories260K/model.gguf -bytes 14172030 \
		-o $(DEMO)/samples.part -t 2 && mv $(DEMO)/samples.part $(DEMO)/samples.txt; }
	test -d $(DEMO)/text || go run ./internal/demotext/make text -data ../shared/data -samples $(DEMO)/samples.txt -o $(DEMO)/text

# The demo model: everything at a rate that stays, then the stories and the talk at one that falls. Each run goes on where it was stopped.
# STEPS of each: a thousand take half an hour of two cores. The file is $(DEMO)/demo.gguf; the last command holds it beside stories260K.
STEPS ?= 1000
REAL = -d $(DEMO)/text/real.jsonl
TRAIN = bin/cktrain run --resume --tokens 256 --batch 16 --walk 8 --steps $(STEPS) --beta2 0.98 --val 0 --dtype f32
.PHONY: demo-model
demo-model: build demo-text
	test -f $(DEMO)/start.gguf || bin/cktrain new --layers 6 --hidden 256 --ffn 768 --heads 8 --kv-heads 4 --head-dim 32 --vocab 4096 --tied --context 1024 \
		--name ck-demo -d $(DEMO)/text/text.txt -d $(DEMO)/text/talk.jsonl -o $(DEMO)/start.gguf
	test -f $(DEMO)/all/model.gguf || $(TRAIN) -m $(DEMO)/start.gguf -d $(DEMO)/text/text.txt -d $(DEMO)/text/talk.jsonl -o $(DEMO)/all \
		--schedule constant --warmup 100 --lr 0.0015 --log $(DEMO)/all.jsonl
	test -f $(DEMO)/last/model.gguf || $(TRAIN) -m $(DEMO)/all/model.gguf $(REAL) $(REAL) $(REAL) $(REAL) -d $(DEMO)/text/samples.jsonl -d $(DEMO)/text/stories.jsonl \
		-d $(DEMO)/text/talk.jsonl -o $(DEMO)/last --schedule linear --lr-floor 0.02 --warmup 20 --lr 0.0014 --log $(DEMO)/last.jsonl
	bin/ckquant quantize --force $(DEMO)/last/model.gguf $(DEMO)/demo.gguf Q8_0
	go run ./internal/demotext/make score -texts $(DEMO)/text/heldout.jsonl ../shared/data/models/stories260K/model.gguf $(DEMO)/demo.gguf

install: build
	install -d $(DESTDIR)$(PREFIX)/bin $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions \
		$(SHARE)/fish/vendor_completions.d
	install -m 755 bin/* $(DESTDIR)$(PREFIX)/bin/
	install -m 644 man/*.1 $(SHARE)/man/man1/
	for f in man/completions/*.bash; do install -m 644 $$f $(SHARE)/bash-completion/completions/$$(basename $$f .bash); done
	install -m 644 man/completions/_* $(SHARE)/zsh/site-functions/
	install -m 644 man/completions/*.fish $(SHARE)/fish/vendor_completions.d/

# The tables of docs/performance.md beside the peers: folders with builds of each, NAME=DIR,NAME=DIR. Rows that are done are kept in
# $(PEERS) and not repeated. ARGS: further flags of test/peers, such as -states 65.
LLAMA ?=
IK ?=
MODELS ?= models
PEERS ?= peers.jsonl
ARGS ?=
.PHONY: peers
peers: build
	go run ./test/peers -ck bin/ckbench -llama "$(LLAMA)" -ik "$(IK)" -models "$(MODELS)" -state "$(PEERS)" $(ARGS)
