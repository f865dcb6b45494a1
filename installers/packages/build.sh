#!/bin/sh
# Makes packages with nfpm: `make packages` runs this.
#
#   build.sh VERSION PROGRAM OUT KIND/ARCH...      PROGRAM with %s where the architecture stands
set -eu
cd "$(dirname "$0")/../.."

version=$1 program=$2 out=$3
shift 3
go -C installers/packages/nfpm build -o "$PWD/bin/nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm
go build -o bin/mkpackages ./installers/packages
PKG_FILES=$out/files
PKG_VERSION=$(bin/mkpackages version "$version")
export PKG_FILES PKG_VERSION
# The same sources make the same package.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH
bin/mkpackages files "$PKG_FILES"
for each in "$@"; do
  PKG_ARCH=${each#*/}
  # shellcheck disable=SC2059
  PKG_PROGRAM=$(printf "$program" "$PKG_ARCH")
  export PKG_ARCH PKG_PROGRAM
  bin/nfpm package --config installers/packages/nfpm.yaml --packager "${each%/*}" --target "$out/"
done
