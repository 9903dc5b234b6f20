# Runahead. `make demo` and `make test` need nothing but make installed by hand
# on a fresh Debian or Ubuntu machine: scripts/setup sees to it.

PREFIX ?= /usr/local
CARGO_HOME ?= $(HOME)/.cargo
export PATH := $(CARGO_HOME)/bin:$(PATH)
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# The command is linked statically, with musl: it runs before every program,
# and glibc takes a third of a millisecond each time, dynamic or static (it asks
# the processor about its caches, which traps in a virtual machine). Partial
# relro (a static program has nothing to bind later) lets it call functions
# directly: a table of their addresses would be another page to wait for.
TARGET := x86_64-unknown-linux-musl
RUNAHEAD := target/$(TARGET)/release/runahead

.PHONY: all setup setup-build build demo test test-command test-compiler lint bench install suites fuzz clean

all: build

setup:
	@scripts/setup

# What building needs, and no more: who installs without root may not have the rest.
setup-build:
	@scripts/setup build

build: setup-build
	RUSTFLAGS="-Ctarget-feature=+crt-static -Crelocation-model=static -Crelro-level=partial" \
		cargo build --release --locked --target-dir target --package runahead --target $(TARGET)
	cargo build --release --locked --target-dir target --package runahead-hint

# Three programs with and without Runahead on cold files, on an emulated
# network volume (root: it mounts one).
demo: setup build
	$(SUDO) $(RUNAHEAD) bench quick

# As root, nothing is skipped: what cannot run fails.
test: setup
	@[ "$$(id -u)" = 0 ] && export RUNAHEAD_REQUIRE_ROOT_TESTS=1; \
	cargo test --workspace --locked

# The command as it is installed: linked otherwise than the one that `make test`
# tests. Outputs are compared, on an emulated device.
test-command: setup build
	scripts/front $(RUNAHEAD)
	scripts/blocked $(RUNAHEAD)
	$(RUNAHEAD) /bin/true
	$(RUNAHEAD) doctor
	$(SUDO) $(RUNAHEAD) bench explicit --app grep2000,cp --scale 0.1 --runs 1 --json target/test-command.json

# The compiler pass, on each version of LLVM.
test-compiler:
	@scripts/setup-compiler
	compiler/test/run

lint: setup
	cargo fmt --all --check
	cargo fmt --manifest-path tests/fuzz/coverage/Cargo.toml --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	scripts/mutations --check
	cargo check --quiet --manifest-path tests/fuzz/coverage/Cargo.toml --target-dir target/fuzz

bench: setup build
	@status=0; for which in "explicit --install" interference overhead; do \
		echo "$(RUNAHEAD) bench $$which"; \
		$(SUDO) $(RUNAHEAD) bench $$which || status=1; \
	done; exit $$status

# The command, its man pages and completions, which come out of the one binary;
# for programs that hint, the library, its header and the manager's unit. Below
# sudo, which has another home and no toolchain there, what has been built is
# installed as it is. The linker's cache is told of the library, but not where a
# package is made, nor without root.
HINT := target/release/librunahead_hint.so
SHARE := $(DESTDIR)$(PREFIX)/share
install: $(if $(and $(SUDO_USER),$(wildcard $(RUNAHEAD)),$(wildcard $(HINT))),,build)
	install -D -m 0755 $(RUNAHEAD) $(DESTDIR)$(PREFIX)/bin/runahead
	install -D -m 0755 $(HINT) $(DESTDIR)$(PREFIX)/lib/librunahead_hint.so
	install -D -m 0644 include/runahead.h $(DESTDIR)$(PREFIX)/include/runahead.h
	sed 's|/usr/local|$(PREFIX)|' dist/runahead-manager.service | \
		install -D -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/runahead-manager.service
	$(RUNAHEAD) man-pages $(SHARE)/man/man1
	install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	$(RUNAHEAD) completions bash > $(SHARE)/bash-completion/completions/runahead
	$(RUNAHEAD) completions zsh > $(SHARE)/zsh/site-functions/_runahead
	$(RUNAHEAD) completions fish > $(SHARE)/fish/vendor_completions.d/runahead.fish
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true

# Other projects' tests, plainly and under Runahead (docs/suites.md).
suites: setup build
	$(SUDO) env PATH="$(PATH)" CARGO_HOME="$(CARGO_HOME)" RUSTUP_HOME="$${RUSTUP_HOME:-$$HOME/.rustup}" scripts/suites

# Coverage-guided fuzzers of parsers, decoders and the emulator.
fuzz: setup
	scripts/fuzz

clean:
	cargo clean
