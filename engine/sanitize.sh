#!/bin/sh
# Builds the core and its stress test under ASan+UBSan and under TSan, and runs both.
# usage: sanitize.sh [SECONDS per sanitizer, default 15]
set -eu
cd "$(dirname "$0")"
seconds=${1:-15}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build_and_run() {
    name=$1
    shift
    mkdir "$OBJ"
    "${CXX:-g++}" -std=c++20 -O1 -g1 -pthread -DRS_INJECT "$@" -x c++-header stress/standard.h \
        -o "$OBJ/standard.h.gch"
    for source in rowstore/*.cpp stress/stress.cpp; do
        echo "$source"
    done | xargs -P 2 -I {} sh -c \
        '"${CXX:-g++}" -std=c++20 -O1 -g1 -pthread -DRS_INJECT "$@" \
            -I "$OBJ" -include standard.h -c "$0" -o "$OBJ/$(basename "$0").o"' \
        {} "$@"
    "${CXX:-g++}" -pthread "$@" "$OBJ"/*.o -o "$work/stress-$name"
    echo "== $name"
    "$work/stress-$name" "$work" "$seconds"
}

export OBJ="$work/asan"
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=66
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
build_and_run asan -fsanitize=address,undefined -fno-sanitize-recover=all

export OBJ="$work/tsan"
export TSAN_OPTIONS=halt_on_error=1:exitcode=66:second_deadlock_stack=1
# The sanitizer ignores stand-alone fences (hence the warning); what they order is atomic anyway.
build_and_run tsan -fsanitize=thread -Wno-tsan
