#!/bin/sh
# Before a removal, and before an upgrade, which must not stop the service: its connections are handed over afterwards.
set -e
case $1 in
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl disable --now gradproxy gradproxy-next || true
