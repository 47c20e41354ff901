#!/bin/sh
# A job that may be preempted at any time: the contract "checkpoint now" by file, in POSIX shell.
#
# The agent writes the request to $request. What this script writes beside it is the answer. A file
# is written under another name first and then renamed, so that a reader never sees half of it.
request=/run/reprieve/request
checkpoint=$CHECKPOINTS/$POD_NAME.step

write() { # write FILE TEXT
    printf '%s\n' "$2" > "$1.new" && mv "$1.new" "$1"
}

answer() { # answer STATE [MORE FIELDS]: always with the id of the request
    write "$request.answer" "{\"id\":\"$id\",\"state\":\"$1\"$2}"
}

save() {
    answer saving
    sleep 1 # a real state takes longer to write than one number
    write "$checkpoint" "$step"
    answer saved ",\"step\":$step,\"path\":\"$checkpoint\""
    echo "saved step $step to $checkpoint"
}

# 128 + SIGTERM: to a Job, 0 would mean that no work is left.
trap 'echo "stopped by SIGTERM, unfinished"; exit 143' TERM

step=0
if [ -n "$RESUME_FROM_CHECKPOINT" ]; then
    read -r step < "$RESUME_FROM_CHECKPOINT"
    echo "resuming from step $step, saved in $RESUME_FROM_CHECKPOINT"
fi
echo "training from step $step to $STEPS"
answered=
while [ "$step" -lt "$STEPS" ]; do
    sleep 0.2 # stands for the work
    step=$((step + 1))
    said=
    if [ -f "$request" ]; then read -r said < "$request"; fi
    id=${said#*\"id\":\"}
    id=${id%%\"*}
    case $said in
    '' | *'"cancelled":true'*) ;; # no request, or cancelled: go on
    *)
        # The same id is the same request, whatever its attempt.
        if [ "$id" != "$answered" ]; then save; fi
        answered=$id
        ;;
    esac
done
echo finished
