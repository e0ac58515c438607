# The entry point of daemons whose secret is a file that only root may read: tasks run as the daemon's user, and are not
# to read it. It is read here, as root, and the daemon has it in its environment, which it hides.
#
#   sh with-secret.sh PROGRAM ARGUMENT...         needs the capabilities SETUID, SETGID and DAC_READ_SEARCH
set -eu
SPARROW_TOKEN=$(cat "${SECRET_FILE:-/run/secrets/sparrow-token}")
export SPARROW_TOKEN HOME=/var/lib/sparrow USER=sparrow LOGNAME=sparrow
exec setpriv --reuid 10001 --regid 10001 --clear-groups --inh-caps=-all --no-new-privs -- "$@"
