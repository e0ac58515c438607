#!/bin/sh
# Installs sparrow-py and its units on a machine with systemd (Debian, Ubuntu and the like). See docs/deploy.md.
#
#   deploy/systemd/install.sh [--destdir DIR] [--prefix /opt/sparrow] [--python python3] [--requirements daemons]
#                             [--no-packages]
#
# Configuration that is there is left as it is. With --destdir (packages, images) nothing outside of DIR is touched, no
# account is made and no token; with --no-packages only files are copied.
set -eu

destdir= prefix=/opt/sparrow python=python3 requirements=daemons packages=yes
while [ $# -gt 0 ]; do
    case $1 in
        --destdir | --prefix | --python | --requirements)
            if [ -z "${2-}" ]; then echo "install.sh: $1 needs a value (see --help)" >&2; exit 2; fi ;;
    esac
    case $1 in
        --destdir) destdir=$2; shift ;;
        --prefix) prefix=$2; shift ;;
        --python) python=$2; shift ;;
        --requirements) requirements=$2; shift ;;
        --no-packages) packages=no ;;
        -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) echo "install.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
units=/usr/lib/systemd/system

case $prefix in /*) ;; *) echo "install.sh: --prefix $prefix is not valid; allowed: an absolute path" >&2; exit 2 ;; esac
# Programs of the environment are to name their interpreter by its path, from which the directory is taken off again.
if [ -n "$destdir" ]; then mkdir -p -- "$destdir"; destdir=$(cd -- "$destdir" && pwd); fi
if [ ! -f "$source/requirements/$requirements.txt" ]; then
    echo "install.sh: --requirements $requirements is not valid; allowed: the name of a file of requirements/" >&2; exit 2
fi
if [ -z "$destdir" ] && [ "$(id -u)" != 0 ]; then
    echo "install.sh: it takes root, or --destdir" >&2; exit 1
fi

copy() {  # MODE FILE TARGET
    install -D -m "$1" "$here/$2" "$destdir$3"
}
configure() {  # FILE TARGET: unless it is there
    [ -e "$destdir$2" ] || copy 0640 "$1" "$2"
}

if [ "$packages" = yes ]; then
    "$python" -m venv "$destdir$prefix"
    "$destdir$prefix/bin/python" -m pip install --quiet --require-hashes -r "$source/requirements/$requirements.txt"
    "$destdir$prefix/bin/python" -m pip install --quiet --no-deps "$source"
    # Programs of the environment name their interpreter: by its path on the machine that it is for.
    [ -z "$destdir" ] || grep -rlIF "$destdir" "$destdir$prefix/bin" "$destdir$prefix/pyvenv.cfg" |
        xargs -r sed -i "s#$destdir##g"
fi

for unit in sparrow-scheduler sparrow-node-monitor; do
    install -d "$destdir$units"
    sed "s#/opt/sparrow#$prefix#g" "$here/$unit.service" > "$destdir$units/$unit.service"
    chmod 0644 "$destdir$units/$unit.service"
done
install -D -m 0644 "$source/docs/deploy.md" "$destdir$prefix/share/docs/deploy.md"
copy 0644 flow.conf "$prefix/share/systemd/flow.conf"
copy 0644 run-as.conf "$prefix/share/systemd/run-as.conf"
copy 0644 sparrow.sysusers /usr/lib/sysusers.d/sparrow.conf
copy 0644 sparrow.tmpfiles /usr/lib/tmpfiles.d/sparrow.conf
configure journald@sparrow.conf /etc/systemd/journald@sparrow.conf
chmod 0644 "$destdir/etc/systemd/journald@sparrow.conf"
configure sparrow-scheduler.default /etc/default/sparrow-scheduler
configure sparrow-node-monitor.default /etc/default/sparrow-node-monitor
configure scheduler.toml /etc/sparrow/scheduler.toml
configure node-monitor.toml /etc/sparrow/node-monitor.toml
configure schedulers /etc/sparrow/schedulers
[ -z "$destdir" ] || exit 0

systemd-sysusers
if [ "$packages" = yes ] && ! runuser -u sparrow -- "$prefix/bin/python" -c ''; then
    echo "install.sh: the user sparrow cannot run $prefix/bin/python: name an interpreter that all may run, by --python" >&2
    exit 1
fi
token=/etc/sparrow/token
if [ ! -e "$token" ]; then
    (umask 077 && "$python" -c 'import secrets; print(secrets.token_hex(32))' > "$token")
    echo "$token is new: copy it to every machine of the cluster, or put the cluster's own in its place"
fi
chown root:sparrow /etc/sparrow/*.toml /etc/sparrow/schedulers "$token"
systemd-tmpfiles --create sparrow.conf
[ ! -d /run/systemd/system ] || systemctl daemon-reload
echo "next: name the schedulers in /etc/sparrow/schedulers, then systemctl enable --now sparrow-scheduler or"
echo "systemctl enable --now sparrow-node-monitor, and"
echo "runuser -u sparrow -- $prefix/bin/sparrow doctor --token-file $token"
