#!/usr/bin/env bash
# deploy/build.sh [FOLDER]: builds gradproxy for distribution into a folder (default: dist): static binaries for Linux on amd64 and arm64,
# SHA256SUMS, and for each a list of the modules in it (CycloneDX). The same commit and the same Go give the same bytes on every machine and in
# every folder; go.mod names the Go. ARCHES names fewer processors.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:-dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$root"

# The builder's own settings must not reach the binaries.
export CGO_ENABLED=0 GOOS=linux GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT= GOFLAGS= GODEBUG= GOWORK=off
lister=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
for arch in ${ARCHES:-amd64 arm64}; do
	name=gradproxy-linux-$arch
	GOARCH=$arch go build -trimpath -buildvcs=true -ldflags '-s -w -buildid=' -o "$out/$name" ./cmd/gradproxy
	env -u GOOS go run "$lister" bin -json -noserial -notimestamp -output "$out/$name.cdx.json" "$out/$name" 2>/dev/null
done
cd "$out"
sha256sum gradproxy-linux-* >SHA256SUMS
