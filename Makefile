# ck: build, test, bench, lint, man pages, install. Everything is plain go; this file only remembers the commands.

PREFIX ?= /usr/local
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

.PHONY: build test bench lint man install

build:
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X ck/internal/cli.version=$(VERSION)" -o bin/ ./cmd/...

test:
	go test ./...

bench:
	go test -run '^$$' -bench . ./asm/... ./internal/kernel ./test

lint:
	gofmt -l . | (! grep .)
	go vet ./...
	go vet -tags noasm ./...
	GOARCH=arm64 go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

man:
	go run ./cmd/ckrun man man

install: build man
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 bin/* $(DESTDIR)$(PREFIX)/bin/
	install -m 644 man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
