#!/bin/sh
# usage: make_page.sh PAGE.scd PAGE: the manual page, by scdoc, without the empty paragraphs that scdoc
# writes around headings, of which mandoc -Tlint warns.
set -eu
text=$(scdoc <"$1")
printf '%s\n' "$text" | awk '
  function heads(line) { return line ~ /^\.(TH|SH|SS|RS|P)( |$)/ }
  function put(line) { print line; last = line }
  function flush() { if (pending && !heads(last)) put(".P"); pending = 0 }
  $0 == ".P" { pending = 1; next }
  $0 == ".nf" { flush(); literal = 1; next }           # .nf comes behind .RS, as .fi comes before .RE
  literal && $0 == ".RS 4" { put($0); put(".nf"); literal = 0; next }
  /^\.RE( |$)/ { put($0); next }                       # a paragraph that ends before .RE ends behind it
  /^\.(SH|SS|RS)( |$)/ { pending = 0 }
  { flush(); put($0) }
' >"$2.part"
mv "$2.part" "$2"
