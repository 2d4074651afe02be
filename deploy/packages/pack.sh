#!/usr/bin/env bash
# deploy/packages/pack.sh STAGE ARCH VERSION FOLDER: makes the packages (.deb, .rpm) for a processor out of a folder that deploy/build.sh has filled, by the nfpm
# in NFPM, signed if GRADPROXY_SIGN_KEY names the file of a private OpenPGP key; NFPM_PASSPHRASE has its passphrase, if there is one.
set -euo pipefail
stage=$1 arch=$2 version=$3 out=$4
umask 022
files=$(mktemp -d) # what the packages hold, readable by all, though the builder's own umask may have made files for the builder alone
config=$files/nfpm.yaml
trap 'rm -rf "$files"' EXIT
cp -R --no-preserve=mode "$stage/units" "$stage/man" "$stage/completion" "$stage/upgrade" deploy/prometheus deploy/grafana deploy/packages/example.yaml deploy/packages/probes.conf LICENSE "$files"
sed -e "s|@ARCH@|$arch|" -e "s|@VERSION@|$version|" -e "s|@STAGE@|$stage|" -e "s|@FILES@|$files|" deploy/packages/nfpm.yaml >"$config"
for kind in deb rpm; do "$NFPM" package -f "$config" -p $kind -t "$out/gradproxy_$arch.$kind"; done
