#!/usr/bin/env bash
# Installs the frameworks and tools that the integration tests run, outside the checkout.
#
# usage: install.sh [NAME...]     without a name, all; names as in GRADPROXY_REQUIRE
#
# Python environments go to $GRADPROXY_ENV (default ${XDG_CACHE_HOME:-$HOME/.cache}/gradproxy/env), one directory
# each. What is complete is left as it is: an environment holds the hash of its recipe in .complete, written last.
# Debian's packages need root. Progress goes to stderr.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
env_dir=${GRADPROXY_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/gradproxy/env}
python=${PYTHON:-python3.11}

# One more framework is one more line here, and NAME.txt beside this script if it comes from PyPI (the full
# list of its packages with their versions: `pip freeze`) and after_NAME below if that is not enough.
install_one() {
	case $1 in
	tools)         debian nftables iproute2 gnupg rpm gcc binutils libc6-dev clang-16 llvm-16 ;;
	haproxy)       debian haproxy ;;
	buildah)       debian buildah crun ;;
	fashion-mnist) debian dataset-fashion-mnist ;;
	torch113)      debian python3-torch ;; # 1.13.1, Gloo without a handshake; run by /usr/bin/python3
	torch215)      debian gcc binutils libc6-dev; pypi torch215 ;;
	torchft)       pypi torch215; pypi torchft ;;
	jax)           pypi jax ;;
	mxnet)         debian libgomp1; pypi mxnet ;;
	tensorflow)    pypi tensorflow ;;
	flower)        pypi flower ;;
	flower139)     pypi flower; pypi flower139 ;;
	flower118)     pypi flower; pypi flower118 ;;
	flower17)      pypi flower17 ;;
	nvflare)       pypi nvflare ;;
	nvflaretorch)  pypi nvflare; pypi torch215; pypi nvflaretorch ;;
	openfl)        pypi openfl ;;
	uml)           unpacked uml user-mode-linux ;; # another kernel, which integration/vm runs as a process
	kubernetes)    pypi kubernetes ;; # helm, and Kubernetes' schemas
	chromium)      debian chromium fonts-dejavu-core ;; # shows the admin page
	axe-core)      npm axe-core 4.10.3 ;; # judges the accessibility of the admin page
	prometheus)    unpacked prometheus prometheus ;; # with promtool; its service would take port 9090
	qemu)          debian qemu-system-x86; kernel qemu linux-image-amd64 ;; # the same for processors on which uml does not start
	*)             fail "unknown environment $1: one of $all" ;;
	esac
}
all='tools haproxy buildah fashion-mnist torch113 torch215 torchft jax mxnet tensorflow flower flower139 flower118 flower17 nvflare nvflaretorch openfl uml qemu prometheus kubernetes chromium axe-core'

# The CUDA wheel of torch without 4 GB of NVIDIA's packages: stand-ins for the libraries that it links.
after_torch215() {
	"$1/bin/python" "$here/cuda_stand_ins.py" "$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch/lib" >&2
	"$1/bin/python" -c 'import torch.distributed as d; assert d.is_gloo_available()'
}

# Releases of Flower need nearly the same packages.
after_flower139() {
	"$env_dir/flower/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		>"$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/flower.pth"
	"$1/bin/python" -c 'import flwr.cli.app'
}
after_flower118() { after_flower139 "$1"; }

# NVFlare and PyTorch are those of other environments.
after_nvflaretorch() {
	local other
	for other in nvflare torch215; do
		"$env_dir/$other/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
	done >"$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/others.pth"
	"$1/bin/python" -c 'import torch, nvflare.app_opt.pt.decomposers'
}

# PyTorch is that of another environment.
after_torchft() {
	"$env_dir/torch215/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		>"$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch215.pth"
	"$1/bin/python" -c 'import torchft.local_sgd'
}

# Helm comes from Go's modules, whose checksums Go knows.
after_kubernetes() {
	GOFLAGS= GOBIN="$1/bin" go install helm.sh/helm/v3/cmd/helm@v3.22.0 >&2
}

say() { echo "install.sh: $*" >&2; }
fail() { say "$*"; exit 1; }

retry() {
	for pause in 5 20 ''; do
		"$@" && return
		[ -n "$pause" ] || return 1
		say "failed, again in $pause s: $*"
		sleep "$pause"
	done
}

# debian PACKAGE...: apt-get update runs once, and only if something is missing.
debian() {
	local missing=()
	for p in "$@"; do
		[ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2>/dev/null)" = 'ii ' ] || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	[ "$(id -u)" = 0 ] || fail "needs root to install ${missing[*]}: apt-get install ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	[ -n "${updated:-}" ] || retry apt-get -q update >&2 </dev/null
	updated=yes
	retry apt-get -q install -y --no-install-recommends "${missing[@]}" >&2 </dev/null
}

# unpacked NAME PACKAGE: the files of a Debian package, not installed.
unpacked() {
	local dir=$env_dir/$1
	[ "$(cat "$dir/.complete" 2>/dev/null)" != "$2" ] || return 0
	[ -n "${updated:-}" ] || [ "$(id -u)" != 0 ] || retry apt-get -q update >&2 </dev/null
	updated=yes
	rm -rf "$dir"
	mkdir -p "$dir"
	(cd "$dir" && retry apt-get -q download "$2" >&2 </dev/null && dpkg -x "$2"_*.deb . && rm "$2"_*.deb)
	echo "$2" >"$dir/.complete"
}

# npm NAME VERSION: the files of an npm package, without those that it needs.
npm() {
	local dir=$env_dir/$1
	[ "$(cat "$dir/.complete" 2>/dev/null)" != "$2" ] || return 0
	type -P npm >/dev/null || debian npm
	rm -rf "$dir"
	mkdir -p "$dir"
	(cd "$dir" && retry command npm pack --silent "$1@$2" >&2 </dev/null && tar -xzf "$1-$2.tgz" --strip-components=1 --no-same-owner && rm "$1-$2.tgz")
	echo "$2" >"$dir/.complete"
}

# kernel NAME METAPACKAGE: the newest packaged kernel and its modules for networks, not installed.
kernel() {
	local dir=$env_dir/$1 package
	[ "$(cat "$dir/.complete" 2>/dev/null)" != "$2" ] || return 0
	[ -n "${updated:-}" ] || [ "$(id -u)" != 0 ] || retry apt-get -q update >&2 </dev/null
	updated=yes
	package=$(apt-cache depends "$2" | awk '$1 == "Depends:" { print $2; exit }')
	[ -n "$package" ] || fail "$2 depends on no kernel"
	rm -rf "$dir"
	mkdir -p "$dir"
	(
		cd "$dir"
		retry apt-get -q download "$package" >&2 </dev/null
		dpkg-deb --fsys-tarfile "$package"_*.deb | tar -x --wildcards --no-wildcards-match-slash './boot/vmlinuz-*' \
			'./lib/modules/*/modules.builtin' './lib/modules/*/kernel/net' './lib/modules/*/kernel/drivers/net/*.ko' \
			'./lib/modules/*/kernel/drivers/virtio' './lib/modules/*/kernel/fs/9p' './lib/modules/*/kernel/fs/netfs' \
			'./lib/modules/*/kernel/fs/fscache' './lib/modules/*/kernel/crypto' './lib/modules/*/kernel/lib'
		rm "$package"_*.deb
	)
	echo "$2" >"$dir/.complete"
}

# recipe NAME: all that decides what pypi NAME makes.
recipe() {
	cat "$here/$1.txt"
	if declare -f "after_$1"; then cat "$here"/*.py; fi
}

# pypi NAME: a virtual environment with exactly the packages of NAME.txt.
pypi() {
	local venv=$env_dir/$1 recipe
	recipe=$(recipe "$1" | sha256sum)
	[ "$(cat "$venv/.complete" 2>/dev/null)" != "$recipe" ] || return 0
	command -v "$python" >/dev/null || fail "no $python: install Python 3.11 or set PYTHON"
	"$python" -c 'import ensurepip, venv' 2>/dev/null || debian python3.11-venv
	rm -rf "$venv"
	mkdir -p "$env_dir"
	"$python" -m venv "$venv"
	retry "$venv/bin/pip" install -q --no-deps --disable-pip-version-check -r "$here/$1.txt" >&2 </dev/null
	if declare -F "after_$1" >/dev/null; then "after_$1" "$venv"; fi
	echo "$recipe" >"$venv/.complete"
}

mkdir -p "$env_dir"
exec 9>"$env_dir/.lock"
flock 9 # two runs at once: the second waits and finds everything complete
[ $# -gt 0 ] || set -- $all
for name in "$@"; do
	SECONDS=0
	install_one "$name"
	say "$name: complete (${SECONDS} s)"
done
