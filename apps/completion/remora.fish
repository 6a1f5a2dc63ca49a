# Completion of remora and remora-server for fish. `remora __complete` says what may follow; regions come from
# the server that the word names, volumes from the store of the cluster.

function __remora_complete
    set -l words (commandline -opc)
    for line in ($words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            printf '%s\n' $line
        end
    end
end
complete -c remora -f -a '(__remora_complete)'

complete -c remora-server -f -s h -l help -d 'Print the options'
complete -c remora-server -f -l version -d 'Print the version'
complete -c remora-server -r -F -l config -d 'The file of the server'
complete -c remora-server -f -l check -d 'Check the file and start nothing'
complete -c remora-server -r -F -l port-file -d 'Write the port that was bound to this file'
complete -c remora-server -x -l warm-fd -d 'The number of a socket to a supervisor that keeps descriptors'
