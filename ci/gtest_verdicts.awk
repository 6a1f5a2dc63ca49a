# Turns GoogleTest's verdicts into lines that ci/test.sh counts, each behind the name in the variable
# `name`; lines of two guests begin with "[0] " or "[1] ". Exit status: 0, 1 nothing was counted, 2 a
# test has failed.
{ print; fflush() }
{ guest = ""; line = $0 }
/^\[[01]\] / { guest = substr($0, 1, 4); line = substr($0, 5) }
line ~ /^\[ +(OK|FAILED|SKIPPED) +\] .*\([0-9]+ ms\)/ {
  test = line
  sub(/^\[[^]]*\] /, "", test)
  sub(/(, where .*)? \([0-9]+ ms\).*/, "", test)
  verdict = name ": " test (guest ? " " substr(guest, 1, 3) : "")
  match(line, /\([0-9]+ ms\)/)
  printf "  took: %.3f %s\n", substr(line, RSTART + 1) / 1000, verdict
  if (line ~ /^\[ +OK/) print "ok - " verdict
  else if (line ~ /^\[ +SKIPPED/) print "ok - " verdict " # SKIP " last[guest]
  else { print "not ok - " verdict; failed = 1 }
  counted = 1
  fflush()
  next
}
{ last[guest] = line }
END { exit failed ? 2 : !counted }
