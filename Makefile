# `make demo` and `make test` are all that a newcomer needs; both install what is missing.

CARGO ?= cargo
# Where `make install` puts things; DESTDIR goes before every path, for packages.
PREFIX ?= /usr/local
BINARIES ?= target/release
# mount(8) looks for the helpers of file systems in /sbin and nowhere else.
HELPERS ?= $(if $(filter /usr /usr/local,$(PREFIX)),/sbin,$(PREFIX)/sbin)

.PHONY: demo test build docs module dependencies clean-results deb gallery tarballs install install-kurabe \
	install-lump install-minfs install-module uninstall

build:
	$(CARGO) build --release --workspace

# minfs as a kernel module, minfs/kernel/minfs.ko, for the running kernel or that of KDIR.
module:
	$(MAKE) -C minfs/kernel

dependencies:
	scripts/install-dependencies

# ext4, XFS and Btrfs under an unpacked source tree, on an image file, in about two minutes.
demo: dependencies
	$(CARGO) build --release --package kurabe
	scripts/demo

test: dependencies
	$(CARGO) fmt --all --check
	if command -v python3 >/dev/null; then for list in lump minfs kurabe; do scripts/mutants $$list --check || exit 1; done; \
	else echo "SKIPPED: whether the lists of mutations fit the source: python3 is missing"; fi
	CARGO="$(CARGO)" scripts/tests

# docs/gallery.md and its pages from the results that are kept.
gallery:
	scripts/gallery

# The documentation as a book, with mdBook; says so where mdBook is missing.
docs:
	scripts/book

clean-results:
	rm -rf kurabe-results

# After `make build`: the programs, man pages and completions.
install: install-kurabe install-lump install-minfs

share = $(DESTDIR)$(PREFIX)/share
bash = $(share)/bash-completion/completions
zsh = $(share)/zsh/site-functions
fish = $(share)/fish/vendor_completions.d

define install-program
	test -x $(BINARIES)/$(1) || { echo "$(BINARIES)/$(1) is missing: make build first"; exit 1; }
	install -D -m 755 $(BINARIES)/$(1) $(DESTDIR)$(PREFIX)/bin/$(1)
	install -d $(bash) $(zsh) $(fish)
	umask 022 && $(BINARIES)/$(1) completions bash >$(bash)/$(1)
	umask 022 && $(BINARIES)/$(1) completions zsh >$(zsh)/_$(1)
	umask 022 && $(BINARIES)/$(1) completions fish >$(fish)/$(1).fish
endef

install-kurabe:
	$(call install-program,kurabe)
	$(BINARIES)/kurabe man $(share)/man/man1

install-lump:
	$(call install-program,lump)
	$(BINARIES)/lump man $(share)/man/man1

install-minfs:
	$(call install-program,minfs)
	$(BINARIES)/minfs man $(share)/man/man8
	install -d $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(HELPERS)
	for name in mkfs.minfs fsck.minfs fsck.fuse.minfs; do \
		ln -sf ../bin/minfs $(DESTDIR)$(PREFIX)/sbin/$$name || exit 1; done
	for name in mount.minfs mount.fuse.minfs; do \
		ln -sf $(PREFIX)/bin/minfs $(DESTDIR)$(HELPERS)/$$name || exit 1; done

# Its source, for dkms(8): `dkms install minfs/VERSION` then builds it for each kernel.
version = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
source = $(DESTDIR)/usr/src/minfs-$(version)

install-module:
	install -d $(source)
	install -m 644 $(filter-out %.mod.c,$(wildcard minfs/kernel/*.[ch])) \
		minfs/kernel/Kbuild minfs/kernel/Makefile minfs/kernel/LICENSE \
		minfs/minfs_format.h $(source)
	umask 022 && sed 's/@VERSION@/$(version)/' minfs/kernel/dkms.conf >$(source)/dkms.conf

# After `make build`: Debian packages of kurabe, lump, minfs and the module in target/deb.
deb:
	BINARIES=$(BINARIES) scripts/deb

# After `make build`: what `make install` installs, an archive a program in target/tarballs, named as `cargo binstall`
# asks for them.
target = $(shell rustc -vV | sed -n 's/^host: //p')
tarballs = target/tarballs

tarballs: $(foreach name,kurabe lump minfs,tarball-$(name))

tarball-%:
	rm -rf $(tarballs)/$*-$(version)-$(target)
	$(MAKE) --silent install-$* DESTDIR=$(abspath $(tarballs))/$*-$(version)-$(target) PREFIX= HELPERS=/sbin
	cp LICENSE-MIT LICENSE-APACHE $(tarballs)/$*-$(version)-$(target)
	tar -C $(tarballs) --owner=0 --group=0 --sort=name -czf $(tarballs)/$*-$(version)-$(target).tgz \
		$*-$(version)-$(target)
	rm -rf $(tarballs)/$*-$(version)-$(target)

uninstall:
	rm -rf $(source)
	rm -f $(foreach name,kurabe lump minfs,$(DESTDIR)$(PREFIX)/bin/$(name))
	rm -f $(foreach name,kurabe lump minfs,$(bash)/$(name) $(zsh)/_$(name) $(fish)/$(name).fish)
	rm -f $(foreach name,kurabe lump,$(share)/man/man1/$(name).1 $(share)/man/man1/$(name)-*.1)
	rm -f $(share)/man/man8/minfs.8 $(share)/man/man8/minfs-*.8 $(share)/man/man8/*.minfs.8
	rm -f $(DESTDIR)$(PREFIX)/sbin/mkfs.minfs $(DESTDIR)$(PREFIX)/sbin/fsck.minfs
	rm -f $(DESTDIR)$(PREFIX)/sbin/fsck.fuse.minfs
	rm -f $(DESTDIR)$(HELPERS)/mount.minfs $(DESTDIR)$(HELPERS)/mount.fuse.minfs
