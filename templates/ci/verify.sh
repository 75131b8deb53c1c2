#!/bin/sh
# Verify images in CI: the reports that CI systems read, in one run, and envlock's own exit code.
#
#   IMAGE='team/train:2.3 team/eval:2.3' LOCK=pylock.env.toml sh verify.sh
#
# IMAGE    one or more images, by white space
# LOCK     what they should be; empty: the lock inside each
# POLICY   empty: envlock.toml or pyproject.toml here, if there is one
# FORMATS  of junit sarif html markdown json; these are written to REPORTS
# REPORTS  a folder; envlock-reports when empty
# ENVLOCK  the program; envlock on PATH when empty
#
# In GitHub Actions findings become annotations, and the job gets a summary and the outputs verdict,
# exit-code, reports, sarif and junit. Exit codes: 0 passed, 1 findings, 3 nothing could be checked,
# anything else: it could not be done (envlock's documentation lists them).
set -euf

envlock=${ENVLOCK:-envlock}
reports=${REPORTS:-envlock-reports}
if [ -z "${IMAGE:-}" ]; then
    echo "verify.sh: set IMAGE to the images to verify" >&2
    exit 2
fi

mkdir -p "$reports"
set --
for format in ${FORMATS:-junit sarif html markdown}; do
    case $format in
        junit) file=junit.xml ;;
        sarif) file=verify.sarif ;;
        html) file=verify.html ;;
        markdown) file=verify.md ;;
        json) file=verify.json ;;
        *)
            echo "verify.sh: FORMATS may name junit, sarif, html, markdown and json" >&2
            exit 2
            ;;
    esac
    rm -f "$reports/$file"
    set -- "$@" "--report=$format=$reports/$file"
done
if [ -n "${LOCK:-}" ]; then set -- "$@" "--lock=$LOCK"; fi
if [ -n "${POLICY:-}" ]; then set -- "$@" "--policy=$POLICY"; fi
if [ -n "${GITHUB_ACTIONS:-}" ]; then set -- "$@" --format=github; fi
set -- "$@" --
for image in $IMAGE; do set -- "$@" "$image"; done

code=0
"$envlock" verify "$@" || code=$?
case $code in
    0) verdict=pass ;;
    1) verdict=fail ;;
    3) verdict=nothing ;;
    *) verdict=error ;;
esac

if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$reports/verify.md" ]; then
    cat "$reports/verify.md" >>"$GITHUB_STEP_SUMMARY"
fi
if [ -n "${GITHUB_OUTPUT:-}" ]; then
    {
        echo "verdict=$verdict"
        echo "exit-code=$code"
        echo "reports=$reports"
        if [ -f "$reports/verify.sarif" ]; then echo "sarif=$reports/verify.sarif"; fi
        if [ -f "$reports/junit.xml" ]; then echo "junit=$reports/junit.xml"; fi
    } >>"$GITHUB_OUTPUT"
fi
exit "$code"
