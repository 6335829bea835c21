#!/bin/sh
# Orders with kcat: send lines, read them back as JSON, ask where a moment in time begins.
#   examples/with_kcat.sh [HOST:PORT]
set -eu
bootstrap=$(python3 "$(dirname "$0")/where.py" "$@")
topic=orders-kcat-$$

printf '1:tea\n2:coffee\n3:water\n' | kcat -b "$bootstrap" -P -t "$topic" -K : -z lz4
kcat -b "$bootstrap" -C -t "$topic" -p 0 -o beginning -e -q -J
kcat -b "$bootstrap" -C -t "$topic" -p 0 -o -1 -e -q -f 'the last order: %s at offset %o\n'
kcat -b "$bootstrap" -Q -t "$topic:0:1"
