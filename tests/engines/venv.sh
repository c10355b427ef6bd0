# Shared by the install scripts: one virtual environment per recipe, kept outside the checkout.
# The folder's name holds a digest of the script that fills it, so a changed recipe never meets an old installation.

ENGINES_DIR=${SENTINEL_ENGINES_DIR:-$HOME/.cache/sentinel-engines}
PYTHON=${PYTHON:-python3}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# begin NAME SCRIPT: sets VENV; prints it and exits when the installation is complete already.
begin() {
    local digest
    digest=$(cat "$HERE/venv.sh" "$2" "$HERE/make_model.py" | sha256sum | cut -c1-12)
    VENV=$ENGINES_DIR/$1-$digest
    if [ "${WHERE_ONLY:-}" = 1 ] || [ -f "$VENV/complete" ]; then
        echo "$VENV"
        exit 0
    fi
    rm -rf "$VENV"
    mkdir -p "$ENGINES_DIR"
    "$PYTHON" -m venv "$VENV"
    PIP="$VENV/bin/python -m pip --quiet --disable-pip-version-check"
    SITE=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
}

# give_name NAME VERSION: a distribution record, for programs that look themselves up by name.
give_name() {
    local record=$SITE/${1//-/_}-$2.dist-info
    mkdir -p "$record"
    printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "$1" "$2" > "$record/METADATA"
    : > "$record/RECORD"
    echo tests/engines > "$record/INSTALLER"
}

# finish: marks the installation complete and prints its folder as the last line of output.
finish() {
    touch "$VENV/complete"
    echo "$VENV"
}
