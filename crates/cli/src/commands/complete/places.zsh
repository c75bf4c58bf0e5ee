
_throughline_places() {
    if [[ $PREFIX == *:/* ]]; then
        local -a places
        places=("${(@f)$(throughline complete-place "$PREFIX" 2> /dev/null)}")
        compadd -S '' -- $places
    elif (( CURRENT > 2 && $+functions[_throughline-lab] )) && [[ $words[2] == lab ]]; then
        words=(throughline-lab "${(@)words[3,-1]}")
        (( CURRENT-- ))
        _throughline-lab "$@"
    else
        _throughline "$@"
    fi
}
compdef _throughline_places throughline
