
_throughline_places() {
    local word="${COMP_LINE:0:COMP_POINT}"
    word="${word##* }"
    if [[ $word != *:/* ]]; then
        local at=1
        while [[ ${COMP_WORDS[at]} == -* ]]; do at=$((at + 1)); done
        if [[ ${COMP_WORDS[at]} == lab && $COMP_CWORD -gt $at ]] && declare -F _throughline__lab > /dev/null; then
            COMP_WORDS=(throughline-lab "${COMP_WORDS[@]:at + 1}")
            COMP_CWORD=$((COMP_CWORD - at))
            _throughline__lab throughline-lab "${@:2}"
        else
            _throughline "$@"
        fi
        return
    fi
    local place before=""
    # If a colon ends a word, bash replaces only the text after it.
    [[ $COMP_WORDBREAKS == *:* ]] && before="${word%"${word##*:}"}"
    COMPREPLY=()
    while IFS= read -r place; do
        COMPREPLY+=("$(printf %q "${place#"$before"}")")
    done < <(throughline complete-place "$word" 2> /dev/null)
    compopt -o nospace 2> /dev/null
}
complete -F _throughline_places -o bashdefault -o default throughline
