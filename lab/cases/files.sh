# Files come back, from folders too, and what was large is whole.
echo "from node $NODE of $NODES" >"$OUT/greeting"
mkdir -p "$OUT/deep/er"
head -c 4000000 /dev/zero | sha256sum | cut -d ' ' -f 1 >"$OUT/deep/er/sum"
