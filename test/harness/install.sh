#!/bin/sh
# Installs the agent command lines that the harness tests drive, at the versions
# of package-lock.json, and prints where each one is: "name path", one a line.
#
#   test/harness/install.sh
#
# Needs Node 18 or newer with npm 9 or newer and the configured npm registry.
# A second call does nothing when the lock file is the one that was installed.
# No script of any package is run: each CLI is a native program that is used as
# it lies in the package for this machine, and .clis/ links to those programs.
set -eu
cd "$(dirname "$0")"

say() { printf 'install.sh: %s\n' "$*" >&2; }

case "$(uname -s)" in
Linux) os=linux triple=unknown-linux-musl ;;
Darwin) os=darwin triple=apple-darwin ;;
*) say "no agent CLIs are pinned for $(uname -s); Linux and macOS are"; exit 1 ;;
esac
case "$(uname -m)" in
x86_64 | amd64) cpu=x64 arch=x86_64 ;;
arm64 | aarch64) cpu=arm64 arch=aarch64 ;;
*) say "no agent CLIs are pinned for $(uname -m); x86_64 and arm64 are"; exit 1 ;;
esac

# opencode comes in a second build for processors without AVX2, and the two CLIs
# that use the C library in a second one for musl.
libc=
if [ "$os" = linux ] && ! getconf GNU_LIBC_VERSION >/dev/null 2>&1; then
	libc=-musl
fi
baseline=
if [ "$os-$cpu" = linux-x64 ] && ! grep -qw avx2 /proc/cpuinfo; then
	baseline=-baseline
fi

codex=node_modules/@openai/codex-$os-$cpu/vendor/$arch-$triple/bin/codex
claude=node_modules/@anthropic-ai/claude-code-$os-$cpu$libc/claude
opencode=node_modules/opencode-$os-$cpu$baseline$libc/bin/opencode

# The copy of the lock file goes in last and npm ci takes it away first, so an
# install that broke off is never taken for a whole one.
stamp=node_modules/.installed-lock.json
installed() {
	cmp -s package-lock.json "$stamp" && [ -x "$codex" ] && [ -x "$claude" ] && [ -x "$opencode" ]
}

if ! installed; then
	command -v npm >/dev/null 2>&1 || { say "npm is not on the PATH; install Node 18 or newer"; exit 1; }
	# Two test runs on one machine must not install over each other.
	if command -v flock >/dev/null 2>&1; then
		mkdir -p .cache
		exec 9>.cache/install.lock
		flock 9
	fi
	if ! installed; then
		say "installing (about 1 GB)"
		npm ci --no-audit --no-fund --fetch-retries=5 </dev/null >&2
		for f in "$codex" "$claude" "$opencode"; do
			[ -x "$f" ] || { say "npm ci did not bring $f"; exit 1; }
		done
		mkdir -p node_modules/.clis
		ln -sf "../${codex#node_modules/}" node_modules/.clis/codex
		ln -sf "../${claude#node_modules/}" node_modules/.clis/claude
		ln -sf "../${opencode#node_modules/}" node_modules/.clis/opencode
		cp package-lock.json "$stamp"
	fi
fi

for name in codex claude opencode; do
	printf '%s %s\n' "$name" "$PWD/node_modules/.clis/$name"
done
