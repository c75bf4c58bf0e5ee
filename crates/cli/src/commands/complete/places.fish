
complete -c throughline -n "string match -q '*:/*' -- (commandline -ct)" -f -a "(throughline complete-place (commandline -ct) 2> /dev/null)"
