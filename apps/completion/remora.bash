# shellcheck shell=bash
# Completion of remora and remora-server for bash. `remora __complete` says what may follow; regions come
# from the server that the word names.

_remora() {
  local line=${COMP_LINE:0:COMP_POINT} words=() word current cut
  # Not COMP_WORDS: it is divided at ':' and '=', which URIs have.
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=('')
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
  # Readline replaces only what stands behind the last character that divides words.
  cut=${current%"${current##*[:=]}"}
  if [[ -n $cut && $COMP_WORDBREAKS == *:* ]]; then COMPREPLY=("${COMPREPLY[@]#"$cut"}"); fi
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
