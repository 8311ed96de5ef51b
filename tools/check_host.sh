#!/bin/sh
# Says what a machine lacks to build torch-sinter, in the words of its package manager. Prints nothing when all is there.
# usage: check_host.sh PYTHON   (CXX names the compiler, c++ by default)
set -u
python=${1:-python3}
cxx=${CXX:-c++}
missing=0

complain() {
  missing=1
  printf 'torch-sinter: %s\n' "$1" >&2
  [ -z "${2:-}" ] || printf '              on Debian and Ubuntu: %s\n' "$2" >&2
}

if [ "$(uname -s)" != Linux ]; then
  complain "only Linux is supported; this is $(uname -s)."
fi

if ! command -v "$python" >/dev/null 2>&1; then
  complain "no $python found; Python 3.10 or newer is needed (make PYTHON=/path/to/python3 picks another)." \
    "apt-get install python3 python3-venv"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  complain "$python is $("$python" -V 2>&1); Python 3.10 or newer is needed (make PYTHON=/path/to/python3 picks another)."
elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
  complain "$python cannot make virtual environments: its venv module is missing." "apt-get install python3-venv"
fi

probe=$(mktemp -d) || exit 1
trap 'rm -rf "$probe"' EXIT
cat >"$probe/probe.cpp" <<'EOF'
#include <concepts>
#include <span>
#include <version>
#if !defined(__cpp_concepts) || !defined(__cpp_lib_span)
#error C++20 is incomplete
#endif
template <std::integral T> T first(std::span<const T> values) { return values[0]; }
int main() { int one[] = {0}; return first(std::span<const int>(one)); }
EOF
if ! command -v "$cxx" >/dev/null 2>&1; then
  complain "no C++ compiler found ($cxx); g++ 11 or newer is needed (CXX=... picks another)." "apt-get install g++"
elif ! "$cxx" -std=c++20 -fopenmp "$probe/probe.cpp" -o "$probe/probe" 2>"$probe/errors"; then
  complain "$cxx ($("$cxx" -dumpfullversion -dumpversion 2>/dev/null | head -n 1)) cannot build a C++20 program with OpenMP; g++ 11 or newer is needed (CXX=... picks another). It said:" \
    "apt-get install g++"
  head -n 5 "$probe/errors" >&2
fi

# PyTorch, LLVM's archives, the test tools and the build together take about 3 GB.
if [ ! -e .venv/.stamps/test ]; then
  free_mb=$(df -Pm . | awk 'NR == 2 {print $4}')
  if [ "${free_mb:-0}" -lt 4000 ]; then
    complain "only $free_mb MB are free in $(pwd); about 4000 are needed."
  fi
fi

exit "$missing"
