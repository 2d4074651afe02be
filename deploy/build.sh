#!/usr/bin/env bash
# deploy/build.sh [FOLDER]: builds gradproxy for distribution into a folder (default: dist): static binaries for Linux on amd64 and arm64, packages of
# them (.deb, .rpm) with manual pages, shell completion and units, SHA256SUMS, and for each binary a list of the modules in it (CycloneDX).
# The same commit and the same Go give the same bytes on every machine and in every folder; go.mod names the Go. ARCHES names fewer
# processors, VERSION another version than the commit's. The program tells the same version, and the commit.
#
# With GRADPROXY_SIGN_KEY, the file of a private OpenPGP key, packages are signed; NFPM_PASSPHRASE has its passphrase, if there is one. Signatures have a time,
# so signed packages are other bytes each time; the binaries stay the same.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:-dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
[ -z "${GRADPROXY_SIGN_KEY:-}" ] || GRADPROXY_SIGN_KEY=$(realpath "$GRADPROXY_SIGN_KEY")
cd "$root"

# The builder's own settings must not reach the binaries.
export CGO_ENABLED=0 GOOS=linux GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT= GOFLAGS= GODEBUG= GOWORK=off
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) # of all files in packages
export SOURCE_DATE_EPOCH
version=${VERSION:-0.0.0+git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$(git rev-parse --short=10 HEAD)}
revision=$(git rev-parse HEAD)
[ -z "$(git status --porcelain)" ] || revision+=+ # the checkout has changes
lister=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
packer=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
# tool NAME MODULE@VERSION: builds a tool of the builder's own system.
tool() { quietly env -u GOOS GOBIN="$stage/bin" go install "$2"; }
# quietly COMMAND: runs it, and prints what it says only if it fails.
quietly() { "$@" >"$stage/said" 2>&1 || { cat "$stage/said" >&2; return 1; }; }
tool cyclonedx-gomod "$lister"
tool nfpm "$packer"

# The parts of packages that are alike for all processors. The program writes its own pages and completion.
env -u GOOS go build -trimpath -tags manual -o "$stage/manual" ./cmd/gradproxy
"$stage/manual" man "$stage/man"
gzip -9 -n "$stage"/man/*
mkdir "$stage/completion" "$stage/units"
env -u GOOS go build -trimpath -o "$stage/plain" ./cmd/gradproxy # without the command that writes the pages
for shell in bash zsh fish; do "$stage/plain" completion $shell >"$stage/completion/$shell"; done
sed 's|/usr/local/bin/|/usr/bin/|' deploy/gradproxy.service >"$stage/units/gradproxy.service"
# The unit that a package upgrade uses for a moment. It must not try again and again to take over: the upgrade does that.
sed -e 's|^Description=.*|&, while the package is being upgraded|' -e 's|^Restart=.*|Restart=on-abnormal|' -e '/^\[Install\]/,$d' \
	"$stage/units/gradproxy.service" >"$stage/units/gradproxy-next.service"
cp deploy/packages/upgrade.sh "$stage/upgrade"

# distribute ARCH: builds the binary for a processor, with its list of modules and its packages.
distribute() {
	local name=gradproxy-linux-$1
	GOARCH=$1 go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.version=$version -X main.revision=$revision" -o "$out/$name" ./cmd/gradproxy
	"$stage/bin/cyclonedx-gomod" bin -json -version "$version" -noserial -notimestamp -output "$out/$name.cdx.json" "$out/$name"
	cp "$out/$name" "$stage/gradproxy-$1"
	NFPM=$stage/bin/nfpm deploy/packages/pack.sh "$stage" "$1" "$version" "$out"
}
# Side by side, since a packer uses one core.
export -f distribute
export out stage version revision
quietly xargs -P 0 -I ARCH bash -euo pipefail -c 'distribute ARCH' <<<"$(tr ' ' '\n' <<<"${ARCHES:-amd64 arm64}")"
cd "$out"
sha256sum gradproxy-linux-* gradproxy_*.deb gradproxy_*.rpm >SHA256SUMS
