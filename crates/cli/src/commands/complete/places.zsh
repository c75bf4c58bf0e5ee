
_throughline_places() {
    if [[ $PREFIX == *:/* ]]; then
        local -a places
        places=("${(@f)$(throughline complete-place "$PREFIX" 2> /dev/null)}")
        compadd -S '' -- $places
    else
        _throughline "$@"
    fi
}
compdef _throughline_places throughline
