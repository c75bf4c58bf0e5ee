
_throughline_places() {
    local word="${COMP_LINE:0:COMP_POINT}"
    word="${word##* }"
    if [[ $word != *:/* ]]; then
        _throughline "$@"
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
