# Sourced by the scripts of the labs: ending with a message, and knowing a process again.
die() { echo "${0##*/}: $*" >&2; exit 1; }

# "PID STARTTIME" of a process that is no zombie: a recycled pid is not taken for it.
ident() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  set -- "$1" ${stat##*) }
  [[ $2 != Z ]] && echo "$1 ${21}"
}
alive() {
  local pid start
  { read -r pid start <"$1"; } 2>/dev/null && [[ $(ident "$pid") == "$pid $start" ]]
}
