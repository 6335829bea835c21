#!/bin/sh
# Orders with kcat: send lines, read them back as JSON, ask where a moment in time begins.
#   examples/with_kcat.sh [127.0.0.1:9092]
set -eu
bootstrap=${1:-127.0.0.1:9092}
topic=orders-kcat-$$

printf '1:tea\n2:coffee\n3:water\n' | kcat -b "$bootstrap" -P -t "$topic" -K : -z lz4
kcat -b "$bootstrap" -C -t "$topic" -p 0 -o beginning -e -q -J
kcat -b "$bootstrap" -C -t "$topic" -p 0 -o -1 -e -q -f 'the last order: %s at offset %o\n'
kcat -b "$bootstrap" -Q -t "$topic:0:1"
