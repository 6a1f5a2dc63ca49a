# shellcheck shell=bash
# Completion of remora and remora-server for bash. `remora __complete` says what may follow; regions come from
# the server that the word names, volumes from the store of the cluster.

# Divides a line as the shell does, without its expansions: sets `words`, of which the last one is the word
# at the end, and `quote`, the quote that is still open there. Not COMP_WORDS: it is divided at ':' and '=',
# which URIs have, and contains quotes.
_remora_divide() {
  local line=$1 char word='' any=0 i
  words=() quote=''
  for ((i = 0; i < ${#line}; ++i)); do
    char=${line:i:1}
    if [[ $char == \\ && $quote != \' ]]; then
      ((++i))
      word+=${line:i:1} any=1
    elif [[ -n $quote ]]; then
      if [[ $char == "$quote" ]]; then quote=''; else word+=$char; fi
    elif [[ $char == [\'\"] ]]; then
      quote=$char any=1
    elif [[ $char != [[:space:]] ]]; then
      word+=$char any=1
    elif ((any)); then
      words+=("$word")
      word='' any=0
    fi
  done
  words+=("$word")
}

_remora() {
  local words quote word current cut
  _remora_divide "${COMP_LINE:0:COMP_POINT}"
  current=${words[-1]}
  COMPREPLY=()
  while IFS=$'\t' read -r word _; do
    if [[ $word == :files ]]; then
      compopt -o filenames 2>/dev/null
      while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$current")
    else
      COMPREPLY+=("$word")
    fi
  done < <("${words[0]/#\~/$HOME}" __complete "${words[@]:1}" 2>/dev/null)
  # More follows `remora://` and `--option=`.
  if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[/=] ]]; then compopt -o nospace 2>/dev/null; fi
  # Readline replaces only what stands behind the last character that divides words, outside of quotes.
  cut=${current%"${current##*[:=]}"}
  if [[ -n $cut && -z $quote && $COMP_WORDBREAKS == *:* ]]; then COMPREPLY=("${COMPREPLY[@]#"$cut"}"); fi
}
complete -F _remora remora

_remora_server() {
  local options
  case $3 in
    --config | --port-file)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$2")
      return
      ;;
  esac
  options=$("$1" --help 2>/dev/null | sed -nE 's/^  (-[a-z],)?(--[a-z-]+).*/\2/p')
  mapfile -t COMPREPLY < <(compgen -W "$options" -- "$2")
}
complete -F _remora_server remora-server
