
complete -c throughline -n "string match -q '*:/*' -- (commandline -ct)" -f -a "(throughline complete-place (commandline -ct) 2> /dev/null)"

function __throughline_lab
    set -l words (commandline -opc)
    set -l lab (contains -i -- lab $words)
    complete -C (string join ' ' -- throughline-lab (string escape -- $words[(math $lab + 1)..]) (commandline -ct))
end
complete -c throughline -n "__fish_seen_subcommand_from lab" -f -a "(__throughline_lab)"
