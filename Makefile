# `make demo` and `make test` are all that a newcomer needs; both install what is missing.

CARGO ?= cargo

.PHONY: demo test build dependencies clean-results

build:
	$(CARGO) build --release --workspace

dependencies:
	scripts/install-dependencies

# ext4, XFS and Btrfs under an unpacked source tree, on an image file, in about two minutes.
demo: dependencies build
	scripts/demo

test: dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --workspace --locked

clean-results:
	rm -rf kurabe-results
