#!/bin/bash
# Prints the number of words of all files that are its arguments.
for file in "$@"; do
    total=$(wc -w < "$file")
done
echo $total
