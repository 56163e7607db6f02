#!/bin/sh
# Submits one job for each learning rate, over REST with curl.
#
#   TRAINYARD_URL=http://127.0.0.1:PORT TRAINYARD_TOKEN=... examples/sweep/sweep.sh 0.01 0.03 0.1 0.3 1.2
#
# An idempotency key per job makes the script safe to run again after an interruption: with the same SWEEP, a job that
# was accepted before is not made twice. All jobs carry the label example=sweep, by which the list can be filtered.
set -eu
: "${TRAINYARD_URL:?the address that the server printed at its start}"
: "${TRAINYARD_TOKEN:?a token; make one with: trainyard token}"
folder=$(dirname "$0")
sweep=${SWEEP:-$(date +%s)}
[ $# -gt 0 ] || set -- 0.01 0.03 0.1 0.3 1.2
number=0
for rate in "$@"; do
  number=$((number + 1))
  sed -e "s/PLACEHOLDER_RATE/$rate/g" -e "s/PLACEHOLDER_NUMBER/$number/g" "$folder/job.yaml" |
    curl --fail-with-body --silent --show-error --data-binary @- \
      -H "Authorization: Bearer $TRAINYARD_TOKEN" -H "Content-Type: application/yaml" \
      -H "Idempotency-Key: sweep-$sweep-$number" "$TRAINYARD_URL/api/v1/jobs"
  echo
done
