#!/bin/bash
# Copies every .txt file of the folder $1 to the folder $2.
mkdir -p "$2"
for file in $(ls $1/*.txt); do
    cp $file $2
done
